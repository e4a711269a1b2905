"""A matrix of cells: each is trained once, with its data before it and its source before that."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from prefect.futures import PrefectFuture

from flows.engine.official_data import on_official_data
from flows.engine.progress import current_progress
from flows.engine.server_loss import ServerLosses, is_server_loss
from flows.engine.suite import Suite
from flows.engine.tasks import generate_dataset, train_cell
from flows.errors import BadInput, CellsFailed
from flows.settings import Settings
from lsm_core.result import Failure, Outcome, Result
from storage.errors import LeaseLost, StoreInterrupted, StoreUnavailable
from storage.runs.leases import PAUSE, Lease, Leases

if TYPE_CHECKING:
    from flows.steps.models.registration import Registrar
    from lsm_core.experiments.experiment import BoundExperiment

Submit = Callable[["BoundExperiment", Lease], PrefectFuture[Any]]


def run_cells(suite: Suite, settings: Settings) -> list[Outcome]:
    """Train the cells of a suite inside a flow and return what came of them, in the same order.

    Sources are trained before what starts from them. As a run is finished, while others train,
    files are attached to its record, and its model goes into the registry if it is to.

    Finished runs are not repeated; a run that was cut off continues from its last checkpoint. A run
    that fails does not stop the others, but those that were to start from it. A run that another
    flow has in hand, here or on another machine with the same store, is left to that one; its
    result is taken when it is there.
    """
    from flows.steps.reports.attachments import Attachments
    from flows.steps.training.cells import failed, slots
    from flows.steps.training.isolation import prepare_isolation
    from flows.steps.training.workplace import workplace
    from storage.tracking.store import open_tracking

    prepare_isolation()
    cells, lost = suite.cells, list[Failure]()
    if suite.official:
        cells, lost = on_official_data(cells, settings)
        if lost and suite.names:
            raise CellsFailed(f"the study needs data that could not be had: {lost[0].error}")
    names = suite.names or [""] * len(cells)
    called = {cell.identity: name for cell, name in zip(cells, names, strict=True)}
    at_once = suite.at_once or slots(len(cells), settings.n_workers)
    threads = suite.n_threads or max(1, settings.n_workers // at_once)
    waves = _waves(cells)
    places, broken = _prepared((cell for wave in waves for cell in wave), settings)
    # A wrong address is said before any training.
    tracking = open_tracking(settings.tracking_uri, settings.root)
    attachments = Attachments(settings.root, tracking, [suite.name])
    registrar = _registrar(settings, sum(map(len, waves))) if suite.register else None
    outcomes: dict[str, Outcome] = {}

    def submit(cell: "BoundExperiment", lease: Lease) -> PrefectFuture[Any]:
        name = called.get(cell.identity, "")
        data = places[cell.dataset]
        place = workplace(settings, data, study=suite.study, n_threads=threads, setting=name)
        return train_cell.submit(cell, place, suite.n_ranks, lease)

    leases = Leases(settings.root / "claims")
    for wave in waves:
        possible = []
        for cell in wave:
            source = cell.source_identity or ""
            if cell.dataset in broken:
                outcomes[cell.identity] = failed(cell, broken[cell.dataset])
            elif isinstance(outcomes.get(source), Failure):
                outcomes[cell.identity] = failed(cell, RuntimeError(f"its source {source} failed"))
            else:
                possible.append(cell)
        for cell, ended in _shared_out(possible, leases, at_once, submit):
            if not isinstance(ended, Result):
                outcomes[cell.identity] = failed(cell, ended)
                continue
            outcomes[cell.identity] = ended
            attachments.add(ended)
            if registrar is not None:
                registrar.add(ended)
    attachments.settle()
    if registrar is not None:
        registrar.settle()
    # A run that another suite has trained first bears the name that it has there.
    ordered = [
        replace(outcomes[cell.identity], study=suite.study, setting=name)
        for cell, name in zip(cells, names, strict=True)
    ]
    return [*ordered, *(replace(failure, study=suite.study) for failure in lost)]


def _prepared(
    cells: Iterable["BoundExperiment"], settings: Settings
) -> tuple[dict[str, str], dict[str, Exception]]:
    """Return where the data of cells lies, and why some of it could not be made, by recipe.

    A problem that the solver fails on is no reason not to train on the others. Official data was
    fetched before, since a cell is named by it.
    """
    from flows.steps.data.datasets import location_of
    from lsm_core.experiments.plans import OfficialPlan
    from storage.datasets.reader import open_dataset

    places: dict[str, str] = {}
    broken: dict[str, Exception] = {}
    for cell in cells:
        if cell.dataset in places or cell.dataset in broken:
            continue
        try:
            if isinstance(cell.data, OfficialPlan):
                place = open_dataset(location_of(cell.data, settings.root)).location
                places[cell.dataset] = place.url
            else:
                places[cell.dataset] = generate_dataset(cell.data, settings)
        except (StoreUnavailable, BadInput):
            raise  # as with every other dataset
        except Exception as error:
            if is_server_loss(error):
                raise
            broken[cell.dataset] = error
    return places, broken


def _shared_out(
    cells: Sequence["BoundExperiment"], leases: Leases, at_once: int, submit: Submit
) -> Iterator[tuple["BoundExperiment", Any]]:
    """Yield every cell with its result or error; those that others have in hand wait for them."""
    waiting, n_reported, losses = deque(cells), 0, ServerLosses()
    running: dict[PrefectFuture[Any], tuple[BoundExperiment, Lease]] = {}
    finished: SimpleQueue[PrefectFuture[Any]] = SimpleQueue()
    ended: list[tuple[BoundExperiment, Any]] = []
    try:
        while waiting or running or ended:
            for _ in range(len(waiting)):
                if len(running) >= at_once:
                    break
                cell = waiting.popleft()
                begun = _begun(cell, leases, submit)
                if begun is None:
                    waiting.append(cell)
                    continue
                running[begun[0]] = cell, begun[1]
                begun[0].add_done_callback(finished.put)
            # After the next has begun: whoever takes these has work with them.
            while ended:
                yield ended.pop()
            n_elsewhere = len(waiting) if len(running) < at_once else 0
            if n_elsewhere not in (0, n_reported):
                current_progress().update(
                    "share", len(cells) - n_elsewhere, len(cells), "others have the rest in hand"
                )
            n_reported = n_elsewhere
            pause = PAUSE * random.uniform(0.5, 1.5) if n_elsewhere else None
            try:
                future = finished.get(timeout=pause) if waiting or running else None
            except Empty:
                continue
            if future is None:
                continue
            cell, lease = running.pop(future)
            lease.release()
            outcome = _outcome(future)
            if isinstance(outcome, LeaseLost) or losses.wait_out(outcome):
                waiting.append(cell)
            else:
                ended.append((cell, outcome))
    finally:
        for _, lease in running.values():
            lease.is_lost = True  # its training ends, or two would have the cell
            lease.release()


def _outcome(future: PrefectFuture[Any]) -> Any:
    """Return the result of a finished task, or the error that it ended with."""
    try:
        return future.result(raise_on_failure=False)
    except Exception as error:  # of Prefect around the task, not of the task
        return error


def _begun(
    cell: "BoundExperiment", leases: Leases, submit: Submit
) -> tuple[PrefectFuture[Any], Lease] | None:
    """Return the task of a cell with its lease; None if others have it or the store is away."""
    try:
        lease = leases.acquire(cell.identity)
    except StoreInterrupted:
        return None
    if lease is None:
        return None
    try:
        return submit(cell, lease), lease
    except BaseException as error:
        lease.release()
        if isinstance(error, StoreInterrupted):
            return None
        raise


def _registrar(settings: Settings, n_runs: int) -> "Registrar":
    """Return who registers models, and reports each beside the progress of training."""
    from flows.steps.models.registration import Registrar

    progress, numbers = current_progress(), count(1)

    def report(note: str) -> None:
        progress.update("register", min(next(numbers), n_runs), n_runs, note)

    return Registrar(settings.root, settings.tracking_uri, report)


def _waves(cells: Sequence["BoundExperiment"]) -> list[list["BoundExperiment"]]:
    """Return the cells and their sources, each once, so that a source is in an earlier wave."""
    depths: dict[str, tuple[int, BoundExperiment]] = {}

    def visit(cell: "BoundExperiment") -> int:
        if cell.identity not in depths:
            depth = visit(cell.source) + 1 if not isinstance(cell.source, str | None) else 0
            depths[cell.identity] = depth, cell
        return depths[cell.identity][0]

    deepest = max((visit(cell) for cell in cells), default=-1)
    return [
        [cell for depth, cell in depths.values() if depth == wanted]
        for wanted in range(deepest + 1)
    ]
