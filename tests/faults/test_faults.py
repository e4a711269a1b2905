"""The table of faults: how it counts, and every fault tried once or twice."""

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.faults import cells, work
from tests.faults.catalogue import FAULTS
from tests.faults.disks import can_mount
from tests.faults.hosts import can_make_hosts
from tests.faults.page import page
from tests.faults.table import (
    KILL_TRIALS,
    Fault,
    Outcome,
    Tally,
    Trial,
    kept_promises,
    read_results,
    try_faults,
)
from tests.infra.manifests import INFRA

NEED_MOUNT = ("disk full", "store read-only")
NEED_HOSTS = ("worker cut off for two minutes",)


@contextmanager
def unlucky(folder: Path) -> Iterator[Trial]:
    """Lose something in one trial of three, miss one, and fail in one."""
    outcomes: Iterator[Outcome | None] = iter([Outcome(), None, Outcome(lost=2, duplicated=1)])

    def trial(moments: random.Random, own: Path) -> Outcome | None:
        try:
            return next(outcomes)
        except StopIteration:
            raise AssertionError(f"{own} is not as it was") from None

    yield trial


def test_trials_are_counted_and_continued(tmp_path: Path) -> None:
    fault = Fault(name="bad luck", promise="none", session=unlucky, trials=3)
    results = tmp_path / "results.json"
    tallies = [tally for _, tally in try_faults([fault], results, tmp_path)]
    assert [tally.tried for tally in tallies] == [1, 1, 2, 3]
    last = read_results(results)["bad luck"]
    assert (last.lost, last.duplicated, last.missed, len(last.failures)) == (2, 1, 1, 1)
    assert not last.is_clean
    assert list(try_faults([fault], results, tmp_path)) == []
    shown = page([fault], {"bad luck": last})
    assert f"| bad luck | none | 3 | 2 | 1 | 1 | {last.day} |" in shown
    assert str(tmp_path) not in shown
    assert kept_promises(shown) == {}
    good = Tally(tried=2, day="2026-11-18")
    assert kept_promises(page([fault], {"bad luck": good})) == {"bad luck": good}


class OneRun:
    """A stack with one cell, which stands as running for three looks after it was hit."""

    def __init__(self) -> None:
        self.looks = 0
        self.seeds: list[int] = []

    def revive(self) -> None: ...

    def submit(self, seeds: list[int]) -> None:
        self.seeds = self.seeds or seeds[:1]

    def runs(self, _flow: str) -> list[cells.Run]:
        self.looks += 1
        state = "RUNNING" if self.looks < 4 else "COMPLETED"
        run = {"id": "one", "state_type": state, "run_count": 1, "total_run_time": 1.0}
        return [{**run, "parameters": {"seed": seed}, "state": {}} for seed in self.seeds]

    def count(self, _seed: int) -> Outcome:
        return Outcome()


def test_a_start_of_a_run_is_hit_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hits = []

    def hit(*_given: object) -> bool:
        hits.append(stack.looks)
        return True

    monkeypatch.setattr(cells.time, "sleep", lambda _seconds: None)
    stack = OneRun()
    session = cells.Session(cast(Any, stack), hit, seconds=0.0)
    session._submit(1)
    assert session.trial(random.Random(0), tmp_path) == Outcome()
    assert hits == [1]


def test_there_are_twelve_faults_and_twenty_trials_of_every_kill() -> None:
    assert len(FAULTS) >= 12
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        if "killed" in fault.name:
            assert fault.trials == KILL_TRIALS == 20


def test_the_page_of_the_repository_shows_the_table() -> None:
    kept = (INFRA / "faults.md").read_text()
    rows = [line for line in kept.splitlines() if line.startswith("| ")]
    named = {row.split(" | ")[0].removeprefix("| ") for row in rows}
    assert {"fault"} < named <= {"fault", *(fault.name for fault in FAULTS)}
    assert "## How it is counted" in kept
    tried = {row.split(" | ")[0].removeprefix("| "): row.split(" | ")[2:6] for row in rows[1:]}
    for fault in FAULTS:
        none = ["0", "0", "0", "0"]
        times, *broken = (int(number) for number in tried.get(fault.name, none))
        # What was not tried as often as it is to be is said in so many words.
        short = f"- {fault.name}: {times} of {fault.trials}\n"
        assert times >= fault.trials or short in kept
        assert broken == [0, 0, 0]


def test_a_fault_that_takes_a_second_loses_nothing(tmp_path: Path) -> None:
    _try("corrupt chunk", tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", [fault.name for fault in FAULTS])
def test_every_fault_loses_nothing(name: str, tmp_path: Path) -> None:
    _try(name, tmp_path, 2)


def _try(name: str, folder: Path, trials: int) -> None:
    if name in NEED_MOUNT and not can_mount():
        pytest.skip("mounting a small disk needs root on Linux")
    if name in NEED_HOSTS and not can_make_hosts():
        pytest.skip("hosts of their own need root on Linux")
    work.prepare_children()
    (fault,) = (fault for fault in FAULTS if fault.name == name)
    with closing(cells.shared):
        for _ in try_faults([fault], folder / "results.json", folder, trials):
            pass
    tally = read_results(folder / "results.json")[name]
    assert tally.is_clean, tally
