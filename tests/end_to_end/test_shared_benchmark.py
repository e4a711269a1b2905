"""A team's set-up on one machine: the store in an object store, both servers on PostgreSQL, and two
cell workers that share one benchmark. Every server is a real one.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import psutil
import pytest

from flows.settings import CELL_POOL
from flows.stack import postgres
from lsm_core.experiments.presets import experiment
from storage.location import Location
from tests.end_to_end.local_stack import REPOSITORY, ask, local_stack, submitted
from tests.storage.s3_servers import in_use, rclone_server

CELLS: dict[str, Any] = {
    "preset": "smoke",
    "benchmarks": ["burgers", "darcy"],
    "models": ["lsm", "fno", "unet"],
    "seeds": [0, 1],
    "cells": "pool",
}
N_CELLS = 12
LATER: dict[str, Any] = {**CELLS, "benchmarks": ["burgers"], "seeds": [2, 3]}
N_LATER = 6
FIRST_LOG, SECOND_LOG = Path(".lsm/logs/prefect-worker-cells.log"), Path("second-worker.log")
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return the project's declarations in a folder that PostgreSQL's user can reach."""
    if postgres.programs() is None:
        pytest.skip("this did not run: PostgreSQL is not installed")
    made = Path(tempfile.mkdtemp(prefix="lsm-"))
    made.chmod(0o755)
    for name in ("prefect.yaml", "prefect.toml"):
        shutil.copy(REPOSITORY / name, made / name)
    (made / "infra").mkdir()
    shutil.copy(REPOSITORY / "infra" / "automations.yaml", made / "infra")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@contextmanager
def second_worker(settings: dict[str, str], folder: Path) -> Iterator[psutil.Process]:
    """Start one more cell worker, which takes one run at a time."""
    command = ["prefect", "worker", "start", "--pool", CELL_POOL, "--limit", "1"]
    with (folder / SECOND_LOG).open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder,
            env={**settings, "PREFECT_HOME": str(folder / "second")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    worker = psutil.Process(started.pid)
    try:
        yield worker
    finally:
        family = [worker, *worker.children(recursive=True)] if worker.is_running() else []
        for process in family:
            process.kill()
        started.wait()


def wait_for(what: Callable[[], Any], seconds: float = 600.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.5)
    return found


def runs_of_cells(settings: dict[str, str]) -> list[dict[str, Any]]:
    """Return all runs of cells, whichever comparison has asked for them."""
    return list(
        ask(settings, "flow_runs/filter", {"deployments": {"name": {"any_": ["train-cell"]}}})
    )


def state(settings: dict[str, str], flow_run: str) -> str:
    return str(ask(settings, f"flow_runs/{flow_run}")["state"]["type"])


def test_two_workers_share_a_benchmark_and_do_no_cell_twice(folder: Path) -> None:
    with rclone_server(folder / "buckets") as server, in_use(server.environment):
        root = server.new_root()
        more = {"LSM_DATABASE": "local", "LSM_WORKERS": "1", "LSM_GPUS": "none"}
        with (
            local_stack(root.url, folder, **more, **server.environment) as settings,
            second_worker(settings, folder),
        ):
            # Two people ask for the same at once; each submission would do for both workers.
            runs = [submitted("lsm/full-benchmark", CELLS, settings, folder) for _ in range(2)]
            wait_for(lambda: all(state(settings, each) in FINAL for each in runs), 1200)
            assert [state(settings, each) for each in runs] == ["COMPLETED", "COMPLETED"]
            cells = runs_of_cells(settings)
            logs = [(folder / log).read_text() for log in (FIRST_LOG, SECOND_LOG)]
            tables = json.loads((root / "reports/benchmark-smoke/results.json").read_bytes())
            _require_once(f"http://127.0.0.1:{settings['LSM_MLFLOW_PORT']}", root)
            _require_that_one_is_cancelled_alone(settings, folder, {each["id"] for each in cells})
        assert {each["state"]["type"] for each in cells} == {"COMPLETED"}
        identities = [tag for each in cells for tag in each["tags"] if tag.startswith("cell:")]
        assert len(set(identities)) == N_CELLS
        assert len(identities) == N_CELLS, f"some cells were trained twice: {identities}"
        shares = [sum(each["id"] in log for each in cells) for log in logs]
        assert all(shares), f"one worker did all: {shares}"
        assert sum(shares) == N_CELLS
        assert len(tables) == N_CELLS
        assert not any("error" in result for result in tables)
        assert (root / "claims").names() == []


def _require_that_one_is_cancelled_alone(
    settings: dict[str, str], folder: Path, earlier: set[str]
) -> None:
    """Require that of two comparisons of the same cells one ends well if the other is cancelled."""

    def cells(*states: str) -> list[dict[str, Any]]:
        found = [each for each in runs_of_cells(settings) if each["id"] not in earlier]
        return [each for each in found if not states or each["state"]["type"] in states]

    first, second = (submitted("lsm/full-benchmark", LATER, settings, folder) for _ in range(2))
    wait_for(lambda: cells("RUNNING") and state(settings, second) == "RUNNING")
    cancel = {"state": {"type": "CANCELLING"}}
    assert ask(settings, f"flow_runs/{first}/set_state", cancel)["status"] == "ACCEPT"
    wait_for(lambda: all(state(settings, each) in FINAL for each in (first, second)), 900)
    assert [state(settings, each) for each in (first, second)] == ["CANCELLED", "COMPLETED"]
    assert {each["state"]["type"] for each in cells()} == {"CANCELLED", "COMPLETED"}
    done = [tag for each in cells("COMPLETED") for tag in each["tags"] if tag.startswith("cell:")]
    assert len(done) == len(set(done)) == N_LATER


def _require_once(tracking_uri: str, root: Location) -> None:
    """Require that MLflow has every cell, every epoch and every model once, its files on S3."""
    client = mlflow.MlflowClient(tracking_uri)
    found = []
    for benchmark in CELLS["benchmarks"]:
        kept = client.get_experiment_by_name(f"pde-{benchmark}")
        assert kept is not None
        assert kept.artifact_location.startswith(root.url)
        found += client.search_runs([kept.experiment_id])
    assert {run.info.status for run in found} == {"FINISHED"}
    cells = Counter(
        (run.data.tags["benchmark"], run.data.tags["model"], run.data.tags["seed"]) for run in found
    )
    assert len(cells) == N_CELLS
    assert set(cells.values()) == {1}
    for run in found:
        history = client.get_metric_history(run.info.run_id, "train/rel_l2")
        made = experiment("smoke", run.data.tags["benchmark"], run.data.tags["model"], 0)
        assert [metric.step for metric in history] == list(range(1, made.training.epochs + 1))
    for benchmark in CELLS["benchmarks"]:
        versions = client.search_model_versions(f"name = 'pde-{benchmark}'")
        identities = Counter(version.tags["identity"] for version in versions)
        assert len(identities) == N_CELLS // 2
        assert set(identities.values()) == {1}
        assert client.get_model_version_by_alias(f"pde-{benchmark}", "champion")
