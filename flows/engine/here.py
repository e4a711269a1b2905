"""Cells on this machine: tasks of the run that asks for them, each in a process of its own."""

from collections import deque
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any

from prefect.futures import PrefectFuture

from flows.engine.schedule import Schedule, cell_name
from flows.engine.suite import Suite
from flows.engine.tasks import train_cell
from flows.settings import Settings
from storage.errors import LeaseLost

if TYPE_CHECKING:
    from flows.steps.training.workplace import Slot
    from lsm_core.experiments.experiment import BoundExperiment


class Here:
    """Trains as many cells at once as this machine has GPUs, or cores if it has none."""

    seconds_between_looks = None
    """Nothing is looked for: the end of a task is an event."""

    def __init__(
        self,
        suite: Suite,
        settings: Settings,
        names: dict[str, str],
        schedule: Schedule,
        events: "SimpleQueue[Any]",
    ) -> None:
        from flows.steps.training.devices import slots

        self._suite, self._settings, self._names = suite, settings, names
        self._schedule, self._events = schedule, events
        n_cells = len(schedule.cells)
        self._free = deque(
            slots(
                suite.device or settings.device,
                n_cells if suite.at_once is None else min(n_cells, suite.at_once),
                settings.n_workers,
                n_ranks=suite.n_ranks,
                runs_per_gpu=settings.runs_per_gpu,
            )
        )
        shared = (suite.n_threads or settings.n_workers // len(self._free)) // suite.n_ranks
        self._threads = max(1, shared)
        self._running: dict[PrefectFuture[Any], tuple[BoundExperiment, Slot]] = {}
        self._elsewhere: deque[BoundExperiment] = deque()
        self._stop = Event()

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()  # trainings of a run that failed end, and leave their checkpoints

    def begin(self) -> None:
        """Begin what may begin and has room; what others have in hand when nothing else is left."""
        for cell in self._schedule.ready():
            if not self._free:
                return
            self._schedule.begun.add(cell.identity)
            self._submit(cell, wait=False)
        if self._running or self._schedule.awaits_data():
            return
        while self._free and self._elsewhere:
            self._submit(self._elsewhere.popleft(), wait=True)

    def _submit(self, cell: "BoundExperiment", *, wait: bool) -> None:
        from flows.steps.training.workplace import workplace

        slot, setting = self._free.popleft(), self._names.get(cell.identity, "")
        place = workplace(
            self._settings,
            self._schedule.places[cell.dataset],
            study=self._suite.study,
            n_threads=self._threads,
            setting=setting,
            slot=slot,
        )
        name = cell_name(cell, setting)
        future = train_cell.submit(name, cell, place, self._suite.n_ranks, self._stop, wait)
        self._running[future] = cell, slot
        future.add_done_callback(self._events.put)

    def ended(self, event: Any) -> "list[tuple[BoundExperiment, Any]]":
        """Return what has ended with an event: a cell, with its result or error."""
        if event not in self._running:
            return []
        cell, slot = self._running.pop(event)
        self._free.append(slot)
        outcome = outcome_of(event)
        if outcome is None or isinstance(outcome, LeaseLost):
            self._elsewhere.append(cell)
            return []
        return [(cell, outcome)]


def outcome_of(future: PrefectFuture[Any]) -> Any:
    """Return the result of a finished task, or the error that it ended with."""
    try:
        return future.result(raise_on_failure=False)
    except Exception as error:  # of Prefect around the task, not of the task
        return error
