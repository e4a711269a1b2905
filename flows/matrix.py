"""A matrix of cells: each is trained once, with its data before it and its source before that."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from prefect import flow
from prefect.futures import PrefectFuture

from flows.errors import BadInput
from flows.progress import current_progress
from flows.server_loss import ServerLosses, is_server_loss
from flows.settings import Settings
from flows.tasks import at_most, generate_dataset, train_cell
from storage.claims import PAUSE, Claim, Claims
from storage.errors import ClaimLost, StoreInterrupted, StoreUnavailable

if TYPE_CHECKING:
    from flows.steps.registration import Registrar
    from lsm_core.experiments.experiment import Experiment

Submit = Callable[["Experiment", Claim], PrefectFuture[Any]]


def run_side_by_side(
    cells: Sequence["Experiment"],
    settings: Settings,
    suite: str,
    names: Sequence[str] = (),
    *,
    register: bool = False,
) -> list[dict[str, Any]]:
    """Train cells, as many at once as this machine has room for, and return their results."""
    from flows.steps.cells import slots

    at_once = slots(len(cells), settings.n_workers)
    threads = max(1, settings.n_workers // at_once)
    run = matrix.with_options(task_runner=at_most(at_once))
    return run(cells, suite, threads, at_once, names, register)


# The parameters are our own objects, which pydantic need not look into. Prefect keeps and shows
# them; the settings are not among them, since addresses of databases may hold passwords.
@flow(name="matrix", flow_run_name="{suite}", validate_parameters=False)
def matrix(
    cells: Sequence["Experiment"],
    suite: str,
    threads: int,
    at_once: int,
    names: Sequence[str] = (),
    register: bool = False,
) -> list[dict[str, Any]]:
    """Train every cell once."""
    settings = Settings.from_environment()
    return run_cells(cells, settings, suite, threads, at_once, names=names, register=register)


def run_cells(
    cells: Sequence["Experiment"],
    settings: Settings,
    suite: str,
    threads: int,
    at_once: int = 1,
    ranks: int = 1,
    names: Sequence[str] = (),
    register: bool = False,
) -> list[dict[str, Any]]:
    """Train bound experiments inside a flow and return their results, in the same order.

    `names` are what the cells are called in their suite, where model and benchmark do not tell.
    As a run is finished, while others train, files are attached to its record, and with `register`
    its model goes into the registry.

    Finished runs are not repeated; a run that was cut off continues from its last checkpoint. A run
    that fails does not stop the others: its result has an `error` instead of figures, and so have
    the runs that were to start from it. A run that another flow has in hand, here or on another
    machine with the same store, is left to that one; its result is taken when it is there.
    """
    from flows.steps.attachments import Attachments
    from flows.steps.cells import failed, is_finished, workplace
    from flows.steps.isolation import prepare_isolation
    from flows.steps.training import open_tracking

    prepare_isolation()
    waves = _waves(cells)
    called = {cell.identity: name for cell, name in zip(cells, names, strict=False)}
    places, broken = _prepared((cell for wave in waves for cell in wave), settings)
    # A wrong address is said before any training.
    attachments = Attachments(settings.root, open_tracking(settings.tracking_uri, settings.root))
    results: dict[str, dict[str, Any]] = {}
    registrar = _registrar(settings, sum(map(len, waves))) if register else None

    def submit(cell: "Experiment", claim: Claim) -> PrefectFuture[Any]:
        name = called.get(cell.identity, "")
        place = workplace(settings, places[cell.dataset], suite, threads, name)
        # The cache knows only its own files; what counts is the result in the store.
        run = train_cell.with_options(refresh_cache=not is_finished(cell, place))
        return run.submit(cell, place, ranks, claim)

    claims = Claims(settings.root / "claims")
    for wave in waves:
        possible = []
        for cell in wave:
            source = cell.start.identity if cell.start else ""
            if cell.dataset in broken:
                results[cell.identity] = failed(cell, broken[cell.dataset])
            elif "error" in results.get(source, {}):
                results[cell.identity] = failed(cell, RuntimeError(f"its source {source} failed"))
            else:
                possible.append(cell)
        for cell, future in _shared_out(possible, claims, at_once, submit):
            outcome, done = _outcome(future), future.state.is_completed()
            results[cell.identity] = outcome if done else failed(cell, outcome)
            if done:
                attachments.add(outcome)
            if registrar is not None and done:
                registrar.add(outcome)
    attachments.settle()
    if registrar is not None:
        registrar.settle()
    # A run that another suite has trained first bears the name that it has there.
    return [
        {**results[cell.identity], "suite": suite, "setting": name}
        for cell, name in zip(cells, names or [""] * len(cells), strict=True)
    ]


def _prepared(
    cells: Iterable["Experiment"], settings: Settings
) -> tuple[dict[str, str], dict[str, Exception]]:
    """Return where the data of cells lies, and why some of it could not be made, by recipe.

    A problem that the solver fails on is no reason not to train on the others. Official data was
    fetched before, since a cell is named by it.
    """
    from flows.steps.datasets import find
    from lsm_core.experiments.official_plan import OfficialPlan

    places: dict[str, str] = {}
    broken: dict[str, Exception] = {}
    for cell in cells:
        if cell.dataset in places or cell.dataset in broken:
            continue
        try:
            if isinstance(cell.data, OfficialPlan):
                places[cell.dataset] = find(cell.data, settings.root).location.url
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
    cells: Sequence["Experiment"], claims: Claims, at_once: int, submit: Submit
) -> Iterator[tuple["Experiment", PrefectFuture[Any]]]:
    """Yield every cell with its finished task; those that others have in hand wait for them."""
    waiting, told, losses = deque(cells), 0, ServerLosses()
    running: dict[PrefectFuture[Any], tuple[Experiment, Claim]] = {}
    finished: SimpleQueue[PrefectFuture[Any]] = SimpleQueue()
    ended: list[tuple[Experiment, PrefectFuture[Any]]] = []
    try:
        while waiting or running or ended:
            for _ in range(len(waiting)):
                if len(running) >= at_once:
                    break
                cell = waiting.popleft()
                begun = _begun(cell, claims, submit)
                if begun is None:
                    waiting.append(cell)
                    continue
                running[begun[0]] = cell, begun[1]
                begun[0].add_done_callback(finished.put)
            # After the next has begun: whoever takes these has work with them.
            while ended:
                yield ended.pop()
            n_elsewhere = len(waiting) if len(running) < at_once else 0
            if n_elsewhere not in (0, told):
                current_progress().update(
                    "share", len(cells) - n_elsewhere, len(cells), "others have the rest in hand"
                )
            told = n_elsewhere
            pause = PAUSE * random.uniform(0.5, 1.5) if n_elsewhere else None
            try:
                future = finished.get(timeout=pause) if waiting or running else None
            except Empty:
                continue
            if future is None:
                continue
            cell, claim = running.pop(future)
            claim.give_back()
            outcome = _outcome(future)
            if isinstance(outcome, ClaimLost) or losses.waited_out(outcome):
                waiting.append(cell)
            else:
                ended.append((cell, future))
    finally:
        for _, claim in running.values():
            claim.is_lost = True  # its training ends, or two would have the cell
            claim.give_back()


def _outcome(future: PrefectFuture[Any]) -> Any:
    """Return the result of a finished task, or the error that it ended with."""
    try:
        return future.result(raise_on_failure=False)
    except Exception as error:  # of Prefect around the task, not of the task
        return error


def _begun(
    cell: "Experiment", claims: Claims, submit: Submit
) -> tuple[PrefectFuture[Any], Claim] | None:
    """Return the task of a cell with its claim; None if others have it or the store is away."""
    try:
        claim = claims.take(cell.identity)
    except StoreInterrupted:
        return None
    if claim is None:
        return None
    try:
        return submit(cell, claim), claim
    except BaseException as error:
        claim.give_back()
        if isinstance(error, StoreInterrupted):
            return None
        raise


def _registrar(settings: Settings, n_runs: int) -> "Registrar":
    """Return who registers models, telling of each beside the progress of training."""
    from flows.steps.registration import Registrar

    progress, told = current_progress(), 0

    def report(note: str) -> None:
        nonlocal told
        told += 1
        progress.update("register", min(told, n_runs), n_runs, note)

    return Registrar(settings.root, settings.tracking_uri, report)


def _waves(cells: Sequence["Experiment"]) -> list[list["Experiment"]]:
    """Return the cells and their sources, each once, so that a source is in an earlier wave."""
    depths: dict[str, tuple[int, Experiment]] = {}

    def visit(cell: "Experiment") -> int:
        if cell.identity not in depths:
            source = cell.start.source if cell.start else None
            depth = 0 if source is None or isinstance(source, str) else visit(source) + 1
            depths[cell.identity] = depth, cell
        return depths[cell.identity][0]

    deepest = max((visit(cell) for cell in cells), default=-1)
    return [
        [cell for depth, cell in depths.values() if depth == wanted]
        for wanted in range(deepest + 1)
    ]
