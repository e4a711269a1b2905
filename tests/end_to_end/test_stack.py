"""The whole local stack under an operator's hands: two at once, pauses, other settings, its end."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flows.engine.own_server import free_port
from flows.settings import CELL_POOL, CONTROL_POOL, RETRAINING_QUEUE
from flows.stack.services import marked_processes
from tests.end_to_end.local_stack import REPOSITORY, ask, environment, run, services, submitted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

UP = ["flows.cli", "stack", "up"]
CELL_WORKERS = ["prefect-worker-cells"]
"""One on a machine without GPU, which the settings below pretend to be."""
SEEDS = {"preset": "smoke", "benchmarks": ["darcy"], "seeds": list(range(20))}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment(
        tmp_path_factory.mktemp("stack"),
        PREFECT_API_URL=f"http://127.0.0.1:{free_port()}/api",
        LSM_MLFLOW_PORT=str(free_port()),
        LSM_GPUS="none",
    )


@pytest.fixture(scope="module")
def said(settings: dict[str, str]) -> Iterator[list[str]]:
    """Start the stack twice at the same moment; provide what both said."""
    began = time.monotonic()
    both = [
        subprocess.Popen(
            [sys.executable, "-m", *UP],
            cwd=REPOSITORY,
            env=settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        errors = [each.communicate(timeout=900)[1] for each in both]
        assert [each.returncode for each in both] == [0, 0], errors
        print(f"two starts of the stack on a new store took {time.monotonic() - began:.1f} s")
        yield errors
    finally:
        down = run(["flows.cli", "stack", "down"], settings)
        assert down.returncode == 0, down.stderr


def test_two_that_start_it_at_once_start_it_once(said: list[str], settings: dict[str, str]) -> None:
    assert sorted(map(bool, said)) == [False, True]
    assert "somebody else changes or copies the stack; waiting" in "".join(said)
    marks = marked_processes(Path(settings["LSM_STORE"]) / "logs")
    leaders = Counter(
        mark.stem for process, mark in marks.items() if os.getsid(process.pid) == process.pid
    )
    names = ["mlflow-server", "prefect-server", "prefect-worker", *CELL_WORKERS, "supervisor"]
    assert leaders == Counter(names)
    assert sorted(service["name"] for service in services(settings)) == names


def choices(settings: dict[str, str]) -> dict[str, Any]:
    """Return what an operator can choose on the server."""
    pool = ask(settings, f"work_pools/{CELL_POOL}")
    queue = ask(settings, f"work_pools/{CONTROL_POOL}/queues/{RETRAINING_QUEUE}")
    retrain = ask(settings, "deployments/name/retrain/scheduled")
    (schedule,) = retrain["schedules"]
    automations = ask(settings, "automations/filter", {})
    return {
        "pool paused": pool["is_paused"],
        "pool limit": pool["concurrency_limit"],
        "retrainings at once": queue["concurrency_limit"],
        "retrain paused": retrain["paused"],
        "nightly": schedule["active"],
        "back": next(
            e["enabled"] for e in automations if e["name"] == "lsm crashed runs come back"
        ),
    }


def test_what_an_operator_chose_stays_when_it_is_started_again(
    said: list[str], settings: dict[str, str]
) -> None:
    first = {
        "pool paused": False,
        "pool limit": None,
        "retrainings at once": 1,
        "retrain paused": False,
        "nightly": False,
        "back": True,
    }
    assert choices(settings) == first
    retrain = ask(settings, "deployments/name/retrain/scheduled")
    nightly = retrain["schedules"][0]["id"]
    ask(settings, f"deployments/{retrain['id']}/pause_deployment", {})  # as the server's page does
    for command in (
        ["work-pool", "pause", CELL_POOL],
        ["work-pool", "set-concurrency-limit", CELL_POOL, "3"],
        ["work-queue", "set-concurrency-limit", RETRAINING_QUEUE, "2", "--pool", CONTROL_POOL],
        ["deployment", "schedule", "resume", "retrain/scheduled", nightly],
        ["automation", "pause", "lsm crashed runs come back"],
    ):
        done = run(["prefect", *command], settings)
        assert done.returncode == 0, done.stdout + done.stderr
    chosen = {
        "pool paused": True,
        "pool limit": 3,
        "retrainings at once": 2,
        "retrain paused": True,
        "nightly": True,
        "back": False,
    }
    assert choices(settings) == chosen
    assert run(UP, settings).returncode == 0
    assert choices(settings) == chosen
    ask(settings, f"deployments/{retrain['id']}/resume_deployment", {})
    for command in (
        ["work-pool", "resume", CELL_POOL],
        ["work-pool", "clear-concurrency-limit", CELL_POOL],
        ["work-queue", "set-concurrency-limit", RETRAINING_QUEUE, "1", "--pool", CONTROL_POOL],
        ["deployment", "schedule", "pause", "retrain/scheduled", nightly],
        ["automation", "resume", "lsm crashed runs come back"],
    ):
        done = run(["prefect", *command], settings)
        assert done.returncode == 0, done.stdout + done.stderr
    assert run(UP, settings).returncode == 0
    assert choices(settings) == first


def test_other_settings_are_refused_while_it_runs(
    said: list[str], settings: dict[str, str]
) -> None:
    before = services(settings)
    refused = run(UP, {**settings, "LSM_MLFLOW_PORT": str(free_port())})
    assert refused.returncode == 1
    assert "running with other settings than those of now: " in refused.stderr
    assert "mlflow-server" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert services(settings) == before


def test_databases_are_copied_while_it_runs_and_not_replaced(
    said: list[str], settings: dict[str, str], tmp_path: Path
) -> None:
    done = run(["flows.cli", "stack", "backup", str(tmp_path / "copies")], settings)
    assert done.returncode == 0, done.stderr
    assert sorted(copy.name for copy in (tmp_path / "copies").iterdir()) == [
        "mlflow.db",
        "prefect.db",
    ]
    with closing(sqlite3.connect(tmp_path / "copies" / "prefect.db")) as copy:
        assert ("scheduled",) in copy.execute("select name from deployment").fetchall()
    refused = run(["flows.cli", "stack", "restore", str(tmp_path / "copies")], settings)
    assert refused.returncode == 2
    assert "the stack runs; `lsm stack down`" in refused.stderr


def test_its_end_ends_the_run_of_a_worker_that_was_killed(
    said: list[str], settings: dict[str, str]
) -> None:
    flow_run = submitted("train/train-one-model", SEEDS, settings)
    deadline = time.monotonic() + 300
    while ask(settings, f"flow_runs/{flow_run}")["state"]["type"] != "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(1)
    logs = Path(settings["LSM_STORE"]) / "logs"
    (worker,) = (each["pid"] for each in services(settings) if each["name"] == "prefect-worker")
    of_the_run = [
        each for each in marked_processes(logs / "prefect-worker.log") if each.pid != worker
    ]
    assert of_the_run
    os.kill(worker, signal.SIGKILL)
    time.sleep(5)
    assert any(each.is_running() for each in of_the_run)
    down = run(["flows.cli", "stack", "down"], settings)
    assert down.returncode == 0, down.stderr
    assert "prefect-worker" in down.stdout
    assert not any(each.is_running() for each in of_the_run)
    assert marked_processes(logs) == {}
