"""Cells on a work pool: each is a run of the deployment `cell/train-cell`, on any of its workers.

The parent submits and waits. What is done is what the store has a result of; the server's states
tell only what will not come any more. A cell has one run at a time, whoever asks for it: the key of
a run is the cell's identity and how many runs of it there were before, so that two parents that ask
at once get the same run, and one that was cancelled or failed can be asked for again.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx
from prefect import get_client
from prefect.artifacts import create_link_artifact
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
    TaskRunFilterSubFlowRuns,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.context import FlowRunContext
from prefect.deployments import run_deployment
from prefect.states import AwaitingRetry, Cancelling

from flows.engine.progress import current_progress
from flows.engine.schedule import Schedule, cell_name
from flows.engine.server_loss import is_server_loss, tells_loss
from flows.engine.sizes import Sizes
from flows.engine.suite import Suite
from flows.errors import CellsFailed
from flows.settings import CELL_DEPLOYMENT, URGENT_QUEUE, Settings
from storage.errors import StoreInterrupted

if TYPE_CHECKING:
    from lsm_core.experiments.experiment import BoundExperiment
    from lsm_core.result import Result

MOST_STARTS = 3
"""How often a run that crashes is started; infra/automations.yaml brings it back until then."""
COMES_BACK_WITHIN = timedelta(minutes=2)
"""A run that the automation has not brought back after so long is brought back by us.

It has missed the event: the server loses one when its database is locked, or when it is killed.
"""
PAGE = 200
"""Runs that Prefect's server gives in one answer at most."""
ACTIVE = [
    StateType.SCHEDULED,
    StateType.PENDING,
    StateType.RUNNING,
    StateType.PAUSED,
    StateType.CANCELLING,
]
CANCELLED_WITH_ANOTHER = object()
"""What came of a run that another comparison had asked for and that was cancelled with it."""
LOOK_SECONDS = 5.0
LOST_SECONDS = 900.0
"""How long a parent bears that the server does not answer."""


class Pool:
    """Submits cells as they become ready, all of them at once, and looks for what has ended."""

    def __init__(
        self, suite: Suite, settings: Settings, names: dict[str, str], schedule: Schedule
    ) -> None:
        self._suite, self._settings, self._names = suite, settings, names
        self._schedule = schedule
        self._children: dict[str, tuple[BoundExperiment, FlowRun]] = {}
        self._finished: list[tuple[BoundExperiment, Any]] = []
        self._answered = time.monotonic()
        self._sizes = Sizes()
        self._told = -1

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Leave children alone: they are runs of their own, and a parent that comes back waits.

        Those of a parent that is being cancelled end with it. The hook does that, too, but Prefect
        calls it when this process has ended and another has imported the flow.
        """
        run_id = _own_run()
        if error is None or isinstance(error, Exception) or run_id is None:
            return
        with suppress(httpx.HTTPError), get_client(sync_client=True) as client:
            own = client.read_flow_run(run_id)
            if own.state is not None and own.state.is_cancelling():
                _cancel_children(client, run_id)

    @property
    def seconds_between_looks(self) -> float:
        """Return how long to wait for events before looking again."""
        return 0.0 if self._finished else LOOK_SECONDS

    def begin(self) -> None:
        """Ask for a run of every cell that may begin; those that are finished end at once."""
        asked: dict[str, FlowRun] = {}
        for cell in self._schedule.ready():
            self._schedule.begun.add(cell.identity)
            if result := self._result(cell):
                self._finished.append((cell, result))
                continue
            run, is_new = self._run_of(cell)
            self._children[cell.identity] = cell, run
            if is_new:
                asked[cell.identity] = run
            else:
                _show_link(cell.identity, run)
        if asked:
            _remove_boxes_of_others(asked)

    def _run_of(self, cell: "BoundExperiment") -> tuple[FlowRun, bool]:
        """Return the run that has a cell in hand, or a new one, and which of both it is."""
        from flows.steps.training.cells import keep_cell

        with get_client(sync_client=True) as client:
            before = read_runs(client, FlowRunFilter(tags=FlowRunFilterTags(all_=[cell_tag(cell)])))
        for run in before:
            if run.state_type in ACTIVE:
                return run, False
        keep_cell(cell, self._settings.root)
        setting = self._names.get(cell.identity, "")
        asked = run_deployment(
            CELL_DEPLOYMENT,
            parameters={
                "identity": cell.identity,
                "benchmark": cell.benchmark.name,
                "model": cell.model_name,
                "seed": cell.seed,
                "preset": cell.preset,
                "study": self._suite.study,
                "setting": setting,
                # The very object that its task returned: Prefect draws the line by that.
                "data": self._schedule.places[cell.dataset],
                "device": self._suite.device,
            },
            flow_run_name=cell_name(cell, setting),
            tags=[cell_tag(cell), cell.benchmark.name, cell.model_name, self._suite.name],
            idempotency_key=f"{cell.identity}:{len(before)}",
            work_queue_name=URGENT_QUEUE if self._schedule.is_source(cell) else None,
            job_variables=self._sizes.of(cell),
            timeout=0,
            as_subflow=True,
        )
        assert isinstance(asked, FlowRun)  # outside of an event loop it is no coroutine
        return asked, True

    def ended(self, _event: Any) -> "list[tuple[BoundExperiment, Any]]":
        """Return what has ended since the last look, by one request for all children."""
        try:
            self._look()
            self._answered = time.monotonic()
        except StoreInterrupted:
            pass  # the store is asked again at the next look
        except Exception as error:
            if not is_server_loss(error) or time.monotonic() - self._answered > LOST_SECONDS:
                raise
        ended, self._finished = self._finished, []
        return ended

    def _look(self) -> None:
        """Move the children that have ended, one by one: what is asked next may not answer."""
        with get_client(sync_client=True) as client:
            ids = [run.id for _, run in self._children.values()]
            runs = {run.id: run for run in runs_by_id(client, ids)}
            for identity, (cell, child) in list(self._children.items()):
                outcome = self._outcome(client, cell, runs.get(child.id))
                if outcome is None:
                    continue
                del self._children[identity]
                if outcome is CANCELLED_WITH_ANOTHER:
                    self._schedule.begun.discard(identity)  # asked for again, by this run
                else:
                    self._finished.append((cell, outcome))
        self._tell([run for run in runs.values() if run.state_type == StateType.RUNNING])

    def _tell(self, running: Sequence[FlowRun]) -> None:
        """Report how far the cells are, if that has changed."""
        n_done = len(self._schedule.outcomes) + len(self._finished)
        if n_done != self._told:
            n_all, self._told = len(self._schedule.cells), n_done
            note = f"{len(running)} train, {n_all - n_done - len(running)} wait"
            current_progress().update("cells", n_done, n_all, note)

    def _outcome(
        self, client: SyncPrefectClient, cell: "BoundExperiment", run: FlowRun | None
    ) -> Any:
        """Return what came of a run, an error if nothing will; None while it may still come."""
        if run is None or run.state is None:
            return CellsFailed("its run is not on the server any more")
        if run.state.type in ACTIVE:
            return None
        if result := self._result(cell):
            return result
        if _comes_back(run) and (_is_young(run.state) or _bring_back(client, run)):
            return None
        if run.state.type == StateType.CANCELLED and not _is_ours(client, run):
            return CANCELLED_WITH_ANOTHER
        return CellsFailed(f"its run {run.name} ended as {run.state.name}: {run.state.message}")

    def _result(self, cell: "BoundExperiment") -> "Result | None":
        from flows.steps.results import stored_result

        return stored_result(self._settings.root, cell.identity)


def _comes_back(run: FlowRun) -> bool:
    """Return whether a run that has ended is started again: it crashed, or lost server or store."""
    assert run.state is not None
    crashed = run.state.type == StateType.CRASHED
    lost = run.state.type == StateType.FAILED and tells_loss(run.state.message)
    return (crashed or lost) and run.run_count < MOST_STARTS


def _is_young(state: State) -> bool:
    """Return whether the automation has still time."""
    return datetime.now(UTC) - state.timestamp <= COMES_BACK_WITHIN


def _bring_back(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Schedule a run again, unless it has ended too often: before its start it is not counted."""
    ended = (StateType.CRASHED, StateType.FAILED)
    times = sum(state.type in ended for state in client.read_flow_run_states(run.id))
    if times < MOST_STARTS:
        client.set_flow_run_state(run.id, AwaitingRetry(message="It comes back."))
    return times < MOST_STARTS


def cell_tag(cell: "BoundExperiment") -> str:
    """Return the tag by which all runs of a cell are found."""
    return f"cell:{cell.identity}"


def read_runs(client: SyncPrefectClient, which: FlowRunFilter) -> list[FlowRun]:
    """Return all runs that a filter lets through, page by page."""
    found: list[FlowRun] = []
    while page := client.read_flow_runs(flow_run_filter=which, limit=PAGE, offset=len(found)):
        found += page
        if len(page) < PAGE:
            break
    return found


def runs_by_id(client: SyncPrefectClient, ids: Sequence[UUID]) -> Iterable[FlowRun]:
    """Yield runs by their ids, as many in one request as the server answers."""
    for first in range(0, len(ids), PAGE):
        which = FlowRunFilter(id=FlowRunFilterId(any_=list(ids[first : first + PAGE])))
        yield from client.read_flow_runs(flow_run_filter=which, limit=PAGE)


def cancel_cells(flow: Any, flow_run: FlowRun, state: Any) -> None:
    """Cancel the cells of a cancelled parent, those that wait first so that no worker begins them.

    The server does it, too, one child each twenty seconds where its database is a file.
    """
    with get_client(sync_client=True) as client:
        _cancel_children(client, flow_run.id)


def _cancel_children(client: SyncPrefectClient, parent: UUID) -> None:
    which = FlowRunFilter(
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[parent]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=ACTIVE[:4])),
    )
    children = read_runs(client, which)
    for child in sorted(children, key=lambda each: each.state_type != StateType.SCHEDULED):
        client.set_flow_run_state(child.id, Cancelling(message="What asked for it was cancelled."))


def _own_run() -> UUID | None:
    """Return the run that this is part of; None outside of any."""
    context = FlowRunContext.get()
    return context.flow_run.id if context is not None and context.flow_run is not None else None


def _is_ours(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Return whether a run was asked for by the flow that this is part of."""
    own = _own_run()
    if own is None or run.parent_task_run_id is None:
        return True
    return client.read_task_run(run.parent_task_run_id).flow_run_id == own


def _remove_boxes_of_others(asked: dict[str, FlowRun]) -> None:
    """Show a link in place of each box whose run another parent has asked for at the same moment.

    Prefect draws a box before it asks for a run. Where the key is known the run is the other's, and
    the box would stand there as pending for ever.
    """
    own = _own_run()
    if own is None:
        return
    of_no_run = TaskRunFilter(
        state=TaskRunFilterState(type=TaskRunFilterStateType(any_=[StateType.PENDING])),
        subflow_runs=TaskRunFilterSubFlowRuns(exists_=False),
    )
    with get_client(sync_client=True) as client:
        pending = client.read_task_runs(
            flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[own])),
            task_run_filter=of_no_run,
            limit=PAGE,
        )
        empty = [box for box in pending if "run_deployment" in box.task_key]
        for box in empty:
            client.delete_task_run(box.id)
        for identity, run in asked.items() if empty else ():
            if not _is_ours(client, run):
                _show_link(identity, run)


def _show_link(identity: str, run: FlowRun) -> None:
    """Show in this run's page where a cell is in hand that another parent has asked for."""
    from prefect.settings import PREFECT_UI_URL

    create_link_artifact(
        f"{PREFECT_UI_URL.value() or ''}/runs/flow-run/{run.id}",
        link_text=run.name,
        key=f"cell-{identity}",
        description="This cell is in hand already; its result is taken from there.",
    )
