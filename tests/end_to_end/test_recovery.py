"""What is killed comes back and ends as if nothing had happened: real processes, real servers."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.end_to_end.local_stack import (
    REPOSITORY,
    ask,
    environment,
    local_stack,
    run,
    services,
    submitted,
)

CELLS = {"preset": "smoke", "benchmarks": ["burgers"], "models": ["lsm", "fno", "unet"]}
COMMAND = ["flows.cli", "benchmark", "--preset", "smoke", "--benchmarks", "burgers"]
COMMAND += ["--models", "lsm", "fno", "unet"]
PATIENCE = 900.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Return the errors of a benchmark that nobody interrupts."""
    settings = environment(
        tmp_path_factory.mktemp("whole"), PREFECT_API_URL="http://127.0.0.1:9/api"
    )
    done = run([*COMMAND, "--json"], settings, seconds=PATIENCE)
    assert done.returncode == 0, done.stderr
    return errors(json.loads(done.stdout)["results"])


def errors(results: list[dict[str, Any]]) -> dict[str, float]:
    return {result["model"]: result["test"]["rel_l2"] for result in results}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with local_stack(tmp_path_factory.mktemp("stack")) as settings:
        yield settings


def wait_for(what: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Return the first true answer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"it did not happen within {seconds:.0f} s")


def training_has_begun(store: str) -> list[Path]:
    return list(Path(store).glob("checkpoints/*"))


def kill_family(process: psutil.Process) -> None:
    """Kill a process and all that it started, at once."""
    family = [process, *process.children(recursive=True)]
    for member in family:
        with suppress(psutil.NoSuchProcess):  # it may have ended just now
            member.kill()
    psutil.wait_procs(family, timeout=10)


def test_a_killed_command_continues_and_ends_with_the_same_table(
    tmp_path: Path, table: dict[str, float]
) -> None:
    settings = environment(tmp_path, PREFECT_API_URL="http://127.0.0.1:9/api")
    moments = random.Random(20230131)
    for _ in range(2):
        before = len(training_has_begun(str(tmp_path)))
        started = subprocess.Popen(
            [sys.executable, "-m", *COMMAND],
            cwd=REPOSITORY,
            env=settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        more = before + 1 if before < 3 else 3
        wait_for(lambda n=more: len(training_has_begun(str(tmp_path))) >= n)
        time.sleep(moments.uniform(0.0, 4.0))
        kill_family(psutil.Process(started.pid))
        started.wait()
    done = run([*COMMAND, "--json"], settings, seconds=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert errors(json.loads(done.stdout)["results"]) == table


def worker_of(settings: dict[str, str]) -> psutil.Process:
    (pid,) = (s["pid"] for s in services(settings) if s["name"] == "prefect-worker")
    return psutil.Process(pid)


def test_a_run_comes_back_after_its_worker_and_its_process_were_killed(
    stack: dict[str, str], table: dict[str, float]
) -> None:
    flow_run = submitted("lsm/full-benchmark", CELLS, stack)
    wait_for(lambda: training_has_begun(stack["LSM_STORE"]))
    kill_family(worker_of(stack))
    # Nobody is left who could say so: for the server it runs.
    assert ask(stack, f"flow_runs/{flow_run}")["state"]["type"] == "RUNNING"
    again = run(["flows.cli", "stack", "up"], stack)
    assert again.returncode == 0, again.stderr
    wait_for(lambda: ask(stack, f"flow_runs/{flow_run}")["state"]["type"] == "COMPLETED")
    assert ask(stack, f"flow_runs/{flow_run}")["run_count"] == 2
    report = Path(stack["LSM_STORE"]) / "reports" / "benchmark-smoke" / "results.json"
    assert errors(json.loads(report.read_text())) == table


def test_a_run_that_dies_every_time_stays_down_after_the_third(stack: dict[str, str]) -> None:
    seeds = {"preset": "smoke", "benchmarks": ["darcy"], "seeds": list(range(20))}
    flow_run = submitted("train/train-one-model", seeds, stack)
    worker = worker_of(stack)
    for start in (1, 2, 3):

        def has_started(number: int = start) -> bool:
            now = ask(stack, f"flow_runs/{flow_run}")
            return bool(now["run_count"] == number and now["state"]["type"] == "RUNNING")

        wait_for(has_started)
        for child in worker.children():
            kill_family(child)
        wait_for(lambda: ask(stack, f"flow_runs/{flow_run}")["state"]["type"] != "RUNNING")
    wait_for(lambda: ask(stack, f"flow_runs/{flow_run}")["state"]["type"] == "CRASHED")
    # Long enough for the server to have brought it back as it did before.
    time.sleep(30)
    last = ask(stack, f"flow_runs/{flow_run}")
    assert (last["state"]["type"], last["run_count"]) == ("CRASHED", 3)
