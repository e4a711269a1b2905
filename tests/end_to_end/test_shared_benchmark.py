"""A team's set-up on one machine: the store in an object store, both servers on PostgreSQL, and two
workers that share one benchmark. Every server is a real one.
"""

import json
import os
import re
import shutil
import signal
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

from flows.settings import POOL
from flows.stack import postgres
from lsm_core.experiments.presets import experiment
from storage.location import Location
from tests.end_to_end.local_stack import REPOSITORY, ask, local_stack, services, submitted
from tests.storage.s3_servers import in_use, rclone_server

CELLS: dict[str, Any] = {
    "preset": "smoke",
    "benchmarks": ["burgers", "darcy"],
    "models": ["lsm", "fno", "unet"],
    "seeds": [0, 1],
}
N_CELLS = 12
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
    """Start one more worker, which takes one run at a time."""
    command = ["prefect", "worker", "start", "--pool", POOL, "--limit", "1"]
    with (folder / "second-worker.log").open("wb") as log:
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


def trained_by(settings: dict[str, str], flow_run: str) -> list[str]:
    """Return the cells that a run has trained to the end, as its log tells."""
    part_of = {"flow_runs": {"parent_flow_run_id": {"any_": [flow_run]}}}
    runs = [flow_run, *(each["id"] for each in ask(settings, "flow_runs/filter", part_of))]
    wanted = {"logs": {"flow_run_id": {"any_": runs}}, "limit": 200}
    lines: list[str] = []
    while True:
        page = ask(settings, "logs/filter", {**wanted, "offset": len(lines)})
        lines += [line["message"] for line in page]
        if len(page) < wanted["limit"]:
            break
    ends = [re.fullmatch(r"train (.*): (\d+) of (\d+)  relative L2 .*", line) for line in lines]
    return [found[1] for found in ends if found and found[2] == found[3]]


def state(settings: dict[str, str], flow_run: str) -> str:
    return str(ask(settings, f"flow_runs/{flow_run}")["state"]["type"])


def test_two_workers_share_a_benchmark_and_do_no_cell_twice(folder: Path) -> None:
    with rclone_server(folder / "buckets") as server, in_use(server.environment):
        root = server.new_root()
        more = {"LSM_DATABASE": "local", "LSM_WORKERS": "1", **server.environment}
        with (
            local_stack(root.url, folder, **more) as settings,
            second_worker(settings, folder),
        ):
            (first_worker,) = (
                each["pid"]
                for each in services(settings, folder)
                if each["name"].endswith("worker")
            )
            # The first worker takes all it can get, the second one run: so each gets one of two.
            os.kill(first_worker, signal.SIGSTOP)
            runs = [submitted("lsm/full-benchmark", CELLS, settings, folder)]
            wait_for(lambda: state(settings, runs[0]) == "RUNNING")
            os.kill(first_worker, signal.SIGCONT)
            runs.append(submitted("lsm/full-benchmark", CELLS, settings, folder))
            wait_for(lambda: all(state(settings, each) in FINAL for each in runs), 1200)
            assert [state(settings, each) for each in runs] == ["COMPLETED", "COMPLETED"]
            shares = [trained_by(settings, each) for each in runs]
            tables = json.loads((root / "reports/benchmark-smoke/results.json").read_bytes())
            _require_once(f"http://127.0.0.1:{settings['LSM_MLFLOW_PORT']}", root)
        assert all(shares), f"one worker did all: {shares}"
        assert len({cell for share in shares for cell in share}) == N_CELLS
        assert sum(map(len, shares)) == N_CELLS, f"some cells were trained twice: {shares}"
        assert len(tables) == N_CELLS
        assert not any("error" in result for result in tables)
        assert (root / "claims").names() == []


def _require_once(tracking_uri: str, root: Location) -> None:
    """Require that MLflow has every cell, every epoch and every model once, its files on S3."""
    client = mlflow.MlflowClient(tracking_uri)
    kept = client.get_experiment_by_name("benchmark")
    assert kept is not None
    assert kept.artifact_location.startswith(root.url)
    found = client.search_runs([kept.experiment_id])
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
        versions = client.search_model_versions(f"name = 'lsm-{benchmark}'")
        identities = Counter(version.tags["identity"] for version in versions)
        assert len(identities) == N_CELLS // 2
        assert set(identities.values()) == {1}
        assert client.get_model_version_by_alias(f"lsm-{benchmark}", "champion")
