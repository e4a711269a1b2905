"""Cells on this machine: who gets room when, without training anything."""

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from flows.engine import here as module
from flows.engine.here import Here
from flows.engine.schedule import Schedule
from flows.engine.suite import Suite
from flows.settings import Settings
from flows.steps.training.cells import benchmark_cells
from storage.errors import LeaseLost
from tests.lsm_core.reporting.results import result


class Task:
    """A task that ends when it is told to, as a future of Prefect does."""

    def __init__(self, name: str, device: str, wait: bool) -> None:
        self.name, self.device, self.wait = name, device, wait
        self.outcome: Any = None

    def add_done_callback(self, tell: Callable[[Any], None]) -> None:
        self.tell = tell

    def result(self, raise_on_failure: bool = True) -> Any:
        return self.outcome


class Tasks:
    """Takes the place of the task `train`, and remembers what was asked of it."""

    def __init__(self) -> None:
        self.begun: list[Task] = []

    def submit(self, name: str, cell: Any, place: Any, ranks: int, stop: Any, wait: bool) -> Task:
        self.begun.append(Task(name, str(place.slot), wait))
        self.stop = stop
        return self.begun[-1]


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tasks:
    monkeypatch.setenv("LSM_STORE", str(tmp_path))
    monkeypatch.setenv("LSM_WORKERS", "2")
    monkeypatch.setenv("LSM_DEVICE", "cpu")
    made = Tasks()
    monkeypatch.setattr(module, "train_cell", made)
    return made


def here(models: list[Any]) -> tuple[Here, Schedule]:
    cells = benchmark_cells("smoke", ["burgers"], models, [0])
    schedule = Schedule.of(cells)
    schedule.places = dict.fromkeys(schedule.plans(), "file:///there")
    suite = Suite(study="benchmark", preset="smoke", cells=cells)
    return Here(suite, Settings.from_environment(), {}, schedule, SimpleQueue()), schedule


def test_as_many_cells_begin_as_there_is_room_and_the_next_when_one_ends(tasks: Tasks) -> None:
    workers, schedule = here(["lsm", "fno", "unet"])
    workers.begin()
    assert len(tasks.begun) == 2
    tasks.begun[0].outcome = result()
    ((cell, outcome),) = workers.ended(tasks.begun[0])
    schedule.end(cell, outcome)
    workers.begin()
    assert len(tasks.begun) == 3
    assert workers.ended("an event of something else") == []


def test_what_others_have_in_hand_is_waited_for_when_nothing_else_is_left(tasks: Tasks) -> None:
    workers, schedule = here(["lsm", "fno", "unet"])
    workers.begin()
    elsewhere, ours = tasks.begun
    assert workers.ended(elsewhere) == []  # it has no outcome: another has it
    workers.begin()
    assert len(tasks.begun) == 3
    for task in (ours, tasks.begun[2]):
        assert not task.wait
        task.outcome = result()
        ((cell, outcome),) = workers.ended(task)
        schedule.end(cell, outcome)
        workers.begin()
    assert [task.wait for task in tasks.begun] == [False, False, False, True]
    assert tasks.begun[3].name == elsewhere.name


def test_a_cell_whose_lease_was_lost_is_left_to_who_has_it_now(tasks: Tasks) -> None:
    workers, _ = here(["lsm"])
    workers.begin()
    tasks.begun[0].outcome = LeaseLost("taken for dead")
    assert workers.ended(tasks.begun[0]) == []
    workers.begin()
    assert [task.wait for task in tasks.begun] == [False, True]


def test_every_gpu_has_a_cell_of_its_own(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LSM_DEVICE", "auto")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    workers, _ = here(["lsm", "fno", "unet", "mwt"])
    workers.begin()
    assert [task.device for task in tasks.begun] == [f"cuda, GPU {number}" for number in range(3)]


def test_trainings_end_when_what_asked_for_them_has_ended(tasks: Tasks) -> None:
    workers, _ = here(["lsm"])
    with workers:
        workers.begin()
        assert not tasks.stop.is_set()
    assert tasks.stop.is_set()
