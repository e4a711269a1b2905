"""The record of training runs in MLflow.

Runs are flat and tagged, never nested: MLflow's charts of a list of runs then fill by themselves.
Metrics are gathered and sent in batches, since one call a metric costs some thirty milliseconds.
"""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import mlflow
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from storage.errors import StoreUnavailable
from storage.location import Location

BATCH = 1000
FINAL_STATES = ("FINISHED", "FAILED", "KILLED")


class Tracking:
    """A tracking database or server, and one experiment in it."""

    def __init__(self, uri: str, experiment: str, artifacts: Location) -> None:
        self.uri = uri
        try:
            self.client = mlflow.MlflowClient(tracking_uri=uri)
            self.experiment_id = self._experiment_id(experiment, artifacts)
        except (MlflowException, SQLAlchemyError) as error:
            raise StoreUnavailable(
                f"the tracking store {uri} cannot be used ({_first_line(error)}); "
                "check MLFLOW_TRACKING_URI"
            ) from error

    def open_run(self, identity: str, name: str, tags: Mapping[str, str]) -> "RunLog":
        """Return the run of an experiment: the one begun before, or a new one."""
        found = self.client.search_runs(
            [self.experiment_id],
            f"tags.identity = '{identity}'",
            run_view_type=ViewType.ACTIVE_ONLY,
            max_results=1,
        )
        if found:
            run_id = found[0].info.run_id
            self.client.update_run(run_id, status="RUNNING")
        else:
            run = self.client.create_run(
                self.experiment_id, run_name=name, tags={**tags, "identity": identity}
            )
            run_id = run.info.run_id
        return RunLog(self.client, run_id)

    def _experiment_id(self, name: str, artifacts: Location) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        # A server decides itself where artifacts lie; a bare database would use the working folder.
        place = None if self.uri.startswith("http") else artifacts.url
        try:
            return str(self.client.create_experiment(name, artifact_location=place))
        except MlflowException:
            # Another process may have made it in between.
            found = self.client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)


@dataclass
class RunLog:
    """One run: parameters once, metrics by step, files, and how it ended."""

    client: mlflow.MlflowClient
    run_id: str
    _waiting: list[Metric] = field(default_factory=list)
    _last_steps: dict[str, int] = field(default_factory=dict)

    def set_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Record the settings of the run; setting the same again changes nothing."""
        params = [Param(name, str(value)) for name, value in parameters.items()]
        self.client.log_batch(self.run_id, params=params)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Add or replace tags."""
        self.client.log_batch(self.run_id, tags=[RunTag(k, v) for k, v in tags.items()])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take in metrics of a step; a step that the run has already is left out."""
        now = time.time_ns() // 1_000_000
        for name, value in metrics.items():
            if step > self._last_step(name):
                self._waiting.append(Metric(name, float(value), now, step))
                self._last_steps[name] = step

    def flush(self) -> None:
        """Send what waits."""
        while self._waiting:
            self.client.log_batch(self.run_id, metrics=self._waiting[:BATCH])
            del self._waiting[:BATCH]

    def add_file(self, path: str, content: bytes) -> None:
        """Attach a file."""
        target = PurePosixPath(path)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / target.name
            file.write_bytes(content)
            parent = None if target.parent == PurePosixPath(".") else str(target.parent)
            self.client.log_artifact(self.run_id, str(file), parent)

    def finish(self, status: str = "FINISHED") -> None:
        """Send what waits and close the run."""
        if status not in FINAL_STATES:
            raise ValueError(f"a run ends as one of {FINAL_STATES}, not as {status!r}")
        self.flush()
        self.client.set_terminated(self.run_id, status)

    def _last_step(self, name: str) -> int:
        """Return the last step the server has of a metric.

        A killed run may have sent steps that its checkpoint does not know of.
        """
        if name not in self._last_steps:
            history = self.client.get_metric_history(self.run_id, name)
            self._last_steps[name] = max((metric.step for metric in history), default=-1)
        return self._last_steps[name]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
