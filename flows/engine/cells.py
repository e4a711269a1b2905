"""The cells of a suite, run inside a flow: data, cells and what follows each, as they come."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from prefect.futures import PrefectFuture

from flows.engine.here import Here, outcome_of
from flows.engine.official_data import on_official_data
from flows.engine.pool import Pool
from flows.engine.progress import current_progress
from flows.engine.schedule import Schedule, failure_of
from flows.engine.server_loss import is_server_loss
from flows.engine.standings import Standings
from flows.engine.suite import Suite
from flows.engine.tasks import generate_dataset
from flows.errors import BAD_INPUT, CellsFailed
from flows.settings import Settings
from lsm_core.result import Failure, Outcome, Result

if TYPE_CHECKING:
    from flows.steps.models.registration import Registrar


def run_cells(suite: Suite, settings: Settings) -> list[Outcome]:
    """Train the cells of a suite inside a flow and return what came of them, in the same order.

    A cell begins when its own data is complete and the run it starts from is finished, here or on a
    work pool. As a run is finished, while others train, files are attached to its record, and its
    model goes into the registry if it is to.

    Finished runs are not repeated; a run that was cut off continues from its last checkpoint. A run
    that fails does not stop the others, but those that were to start from it. A run that another
    flow has in hand, here or on another machine with the same store, is left to that one; its
    result is taken when it is there.
    """
    from flows.steps.reports.attachments import Attachments
    from flows.steps.results import stored_result
    from flows.steps.training.cells import keep_cell
    from storage.tracking.store import open_tracking

    cells, lost = suite.cells, list[Failure]()
    if suite.official:
        cells, lost = on_official_data(cells, settings)
        if lost and suite.names:
            raise CellsFailed(f"the study needs data that could not be had: {lost[0].error}")
    names = suite.names or [""] * len(cells)
    called = {cell.identity: name for cell, name in zip(cells, names, strict=True)}
    schedule = Schedule.of(cells)
    # A wrong address is said before any training.
    tracking = open_tracking(settings.tracking_uri, settings.root)
    for cell in schedule.cells.values():
        keep_cell(cell, settings.root)  # before its data is asked for, which could be freed
    there_before = {each for each in schedule.cells if stored_result(settings.root, each)}
    standings = Standings(schedule, there_before)
    attachments = Attachments(settings.root, tracking, [suite.name])
    registrar = _registrar(settings, len(schedule.cells)) if suite.register else None
    for cell, outcome in _run(schedule, suite, settings, called):
        schedule.end(cell, outcome if isinstance(outcome, Result) else failure_of(cell, outcome))
        if line := standings.after(cell.identity):
            current_progress().tell(line)
        if isinstance(outcome, Result):
            attachments.add(outcome)
            if registrar is not None:
                registrar.add(outcome)
    attachments.settle()
    if registrar is not None:
        registrar.settle()
    # A run that another suite has trained first bears the name that it has there.
    ordered = [
        replace(schedule.outcomes[cell.identity], study=suite.study, setting=name)
        for cell, name in zip(cells, names, strict=True)
    ]
    return [*ordered, *(replace(failure, study=suite.study) for failure in lost)]


def _run(
    schedule: Schedule, suite: Suite, settings: Settings, names: dict[str, str]
) -> Iterator[tuple[Any, Any]]:
    """Yield every cell with its result or error as it ends."""
    from flows.steps.training.isolation import prepare_isolation

    events: SimpleQueue[Any] = SimpleQueue()
    data = _Data(schedule, settings, events)
    workers: Here | Pool
    if suite.on_pool:
        workers = Pool(suite, settings, names, schedule)
    else:
        prepare_isolation()
        workers = Here(suite, settings, names, schedule, events)
    with workers:
        ended: list[tuple[Any, Any]] = []
        while not schedule.is_done():
            data.begin_next()
            workers.begin()
            if ended:
                # After the next has begun: whoever takes these has work with them.
                yield from ended
                ended = []
                continue
            try:
                event = events.get(timeout=workers.seconds_between_looks)
            except Empty:
                event = None
            if not data.take_in(event):
                ended = workers.ended(event)
                for _, outcome in ended:
                    if is_server_loss(outcome):
                        raise outcome


class _Data:
    """Makes the data of cells by a task each, one after the other: each uses all cores."""

    def __init__(self, schedule: Schedule, settings: Settings, events: "SimpleQueue[Any]") -> None:
        from flows.steps.data.datasets import location_of
        from lsm_core.experiments.plans import ConvertedPlan
        from storage.datasets.reader import open_dataset

        self._schedule, self._settings, self._events = schedule, settings, events
        self._waiting = schedule.plans()
        self._running: tuple[PrefectFuture[Any], str] | None = None
        for recipe, plan in list(self._waiting.items()):
            if isinstance(plan, ConvertedPlan):  # made before, since a cell is named by it
                del self._waiting[recipe]
                place = open_dataset(location_of(plan, settings.root)).location
                schedule.places[recipe] = place.url

    def begin_next(self) -> None:
        """Begin the next dataset if none is being made."""
        if self._running is None and self._waiting:
            recipe = next(iter(self._waiting))
            plan = self._waiting.pop(recipe)
            task = generate_dataset.with_options(task_run_name=f"data of {plan.benchmark.name}")
            future = task.submit(plan, self._settings)
            self._running = future, recipe
            future.add_done_callback(self._events.put)

    def take_in(self, event: Any) -> bool:
        """Return whether an event is the end of a dataset; then its cells may begin, or fail."""
        if self._running is None or event is not self._running[0]:
            return False
        (future, recipe), self._running = self._running, None
        outcome = outcome_of(future)
        # A problem that the solver fails on is no reason not to train on the others; what a person
        # has to mend is said at once.
        if isinstance(outcome, BAD_INPUT) or is_server_loss(outcome):
            raise outcome
        if isinstance(outcome, Exception):
            self._schedule.end_without_data(recipe, outcome)
        else:
            self._schedule.places[recipe] = outcome
        return True


def _registrar(settings: Settings, n_runs: int) -> "Registrar":
    """Return who registers models, and reports each beside the progress of training."""
    from flows.steps.models.registration import Registrar

    progress, numbers = current_progress(), count(1)

    def report(note: str) -> None:
        progress.update("register", min(next(numbers), n_runs), n_runs, note)

    return Registrar(settings.root, settings.tracking_uri, report)
