import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flows.errors import ProcessDied
from flows.steps.data.compute import map_unordered
from flows.steps.training import isolation
from flows.steps.training.isolation import Report, run_isolated
from storage.runs.processes import birth_of


def add(left: int, right: int, report: Report) -> tuple[int, int]:
    report({"done": 1})
    report({"done": 2})
    return left + right, os.getpid()


def complain(report: Report) -> None:
    raise ValueError("the plan has no samples")


class Unsendable(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__("cannot be pickled back")


def complain_unsendably(report: Report) -> None:
    raise Unsendable(1, 2)


def die(report: Report) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_result_and_the_reports_come_back_from_another_process() -> None:
    messages: list[dict[str, Any]] = []
    total, pid = run_isolated(add, 2, 3, report=messages.append)
    assert total == 5
    assert pid != os.getpid()
    assert messages == [{"done": 1}, {"done": 2}]


def variable(name: str, report: Report) -> str | None:
    return os.environ.get(name)


def test_it_has_the_environment_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("first", "second"):
        monkeypatch.setenv("LSM_TEST_OF_ISOLATION", value)
        assert run_isolated(variable, "LSM_TEST_OF_ISOLATION") == value
    monkeypatch.delenv("LSM_TEST_OF_ISOLATION")
    assert run_isolated(variable, "LSM_TEST_OF_ISOLATION") is None


def test_its_exception_is_raised_here() -> None:
    with pytest.raises(ValueError, match="the plan has no samples"):
        run_isolated(complain)


def test_an_exception_that_cannot_travel_keeps_its_text() -> None:
    with pytest.raises(RuntimeError, match="Unsendable: cannot be pickled back"):
        run_isolated(complain_unsendably)


def test_its_death_is_told_and_is_its_own() -> None:
    with pytest.raises(ProcessDied, match="exit code -9"):
        run_isolated(die)


def square(number: int) -> int:
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def test_work_is_spread_over_processes() -> None:
    results = map_unordered(square, [(n,) for n in range(5)], n_workers=2, dask_address=None)
    assert sorted(results) == [0, 1, 4, 9, 16]


def test_a_killed_worker_process_is_told() -> None:
    with pytest.raises(ProcessDied, match="starting it again continues"):
        list(map_unordered(square, [(1,), (-1,)], n_workers=1, dask_address=None))


def test_work_is_spread_over_a_dask_cluster() -> None:
    from distributed import LocalCluster

    # Without an address it would take port 8787 all the same, which another may have.
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1"
    ) as cluster:
        address = cluster.scheduler_address
        results = map_unordered(pow, [(2, n) for n in range(5)], n_workers=1, dask_address=address)
        assert sorted(results) == [1, 2, 4, 8, 16]


def test_a_scheduler_that_is_not_there_is_said() -> None:
    with pytest.raises(ValueError, match="LSM_DASK"):
        list(map_unordered(pow, [(2, 2)], n_workers=1, dask_address="nonsense://127.0.0.1:1"))


ORPHAN = """
from flows.steps.training.isolation import run_isolated
from tests.flows.steps.training.test_isolation import sleep_for_long
run_isolated(sleep_for_long, report=lambda message: print(message["pid"], flush=True))
"""


def sleep_for_long(report: Any) -> None:
    report({"pid": os.getpid()})
    time.sleep(600)


def test_a_process_ends_with_the_one_that_was_to_take_its_result() -> None:
    command = [sys.executable, "-c", ORPHAN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert birth_of(pid) is not None
        parent.kill()
        deadline = time.monotonic() + 60
        while birth_of(pid) is not None:
            assert time.monotonic() < deadline, "it outlived its parent"
            time.sleep(0.1)


def leave_a_mark(place: str, report: Report) -> None:
    try:
        report({"done": 1})
        time.sleep(60)
    finally:
        Path(place).write_text("closed")


def test_what_is_ended_from_here_closes_what_it_has_begun(tmp_path: Path) -> None:
    def give_up(message: dict[str, Any]) -> None:
        raise RuntimeError("not wanted any more")

    with pytest.raises(RuntimeError, match="not wanted any more"):
        run_isolated(leave_a_mark, str(tmp_path / "mark"), report=give_up)
    assert (tmp_path / "mark").read_text() == "closed"


def test_where_an_exception_was_raised_is_told_with_it() -> None:
    with pytest.raises(ValueError, match="no samples") as error:
        run_isolated(complain)
    assert 'raise ValueError("the plan has no samples")' in "".join(error.value.__notes__)
    with pytest.raises(RuntimeError, match="Unsendable") as unsendable:
        run_isolated(complain_unsendably)
    assert "complain_unsendably" in "".join(unsendable.value.__notes__)


def stop_moving(report: Report) -> None:
    for done in range(4):
        report({"done": done})
    time.sleep(60)


def test_a_training_that_hangs_is_ended_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "SHORTEST_HANG", 0.5)
    monkeypatch.setattr(isolation, "PAUSES_OF_A_HANG", 2)
    with pytest.raises(ProcessDied, match=r"has not moved for .* starting it again continues"):
        run_isolated(stop_moving)
