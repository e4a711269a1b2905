"""Records of runs for tests: steps with values that are known, at times that are known."""

import math
from typing import Any

from mlflow.entities import Metric

from storage.tracking.echo import RunRecord
from storage.tracking.store import Tracking

BEGAN = 1_700_000_000_000


def loss(step: int) -> float:
    """Return what the metric `loss` is at a step."""
    return math.exp(-step / 100)


def points(n_steps: int, name: str = "loss") -> list[Metric]:
    """Return the metric at steps 1, 2, ..., each a second after the one before."""
    return [Metric(name, loss(s), BEGAN + 1000 * s, s) for s in range(1, n_steps + 1)]


def record(identity: str, n_steps: int = 0, **changes: Any) -> RunRecord:
    """Return the record of a run that has come so far."""
    given = {"name": "a run", "started": BEGAN, "status": "RUNNING", "points": points(n_steps)}
    return RunRecord(identity=identity, **{**given, **changes})


def finished(identity: str, n_steps: int = 0, **changes: Any) -> RunRecord:
    """Return the record of a run that has ended."""
    return record(identity, n_steps, **{"status": "FINISHED", "ended": BEGAN + 10**6, **changes})


def expected(n_steps: int) -> list[tuple[int, float]]:
    """Return the steps and values that MLflow is to have."""
    return [(step, loss(step)) for step in range(1, n_steps + 1)]


def steps(tracking: Tracking, identity: str, name: str = "loss") -> list[tuple[int, float]]:
    """Return the steps and values of the one run of an identity, in the order of their times."""
    (run,) = tracking.client.search_runs([tracking.experiment_id], f"tags.identity = '{identity}'")
    found = tracking.client.get_metric_history(run.info.run_id, name)
    times = [metric.timestamp for metric in found]
    assert times == sorted(times)
    return [(metric.step, metric.value) for metric in found]
