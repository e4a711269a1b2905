"""Cells on a work pool: what a parent makes of the states of its children, without a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType

from flows.engine import pool as module
from flows.engine import sizes
from flows.engine.pool import Pool
from flows.engine.schedule import Schedule
from flows.engine.suite import Suite
from flows.settings import Settings
from flows.steps.training.cells import benchmark_cells
from lsm_core.result import Result
from storage.errors import StoreInterrupted
from tests.lsm_core.reporting.results import result


class Server:
    """Takes the place of Prefect's client: knows the runs that were asked for."""

    def __init__(self) -> None:
        self.runs: dict[UUID, FlowRun] = {}
        self.states: dict[UUID, list[State]] = {}
        self.results: dict[str, Result] = {}
        self.is_away = False
        self.variables: dict[str, Any] = {}
        self.set_by_hand: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []

    def read_work_pool(self, name: str) -> Any:
        template = {"variables": {"properties": self.variables}}
        return SimpleNamespace(name=name, base_job_template=template)

    def read_deployment_by_name(self, name: str) -> Any:
        return SimpleNamespace(name=name, job_variables=self.set_by_hand)

    def set_flow_run_state(self, run: UUID, state: State) -> None:
        self.set_state(run, state.type, starts=self.runs[run].run_count)

    def ask(self, _deployment: str, **wanted: Any) -> FlowRun:
        self.asked.append(wanted)
        run = FlowRun(
            id=uuid4(), flow_id=uuid4(), name=wanted["flow_run_name"], tags=wanted["tags"]
        )
        self.runs[run.id] = run
        self.set_state(run.id, StateType.SCHEDULED)
        return run

    def set_state(
        self,
        run: UUID,
        kind: StateType,
        starts: int = 1,
        hours: float = 0.0,
        message: str = "so it was",
    ) -> None:
        at = datetime.now(UTC) - timedelta(hours=hours)
        state = State(type=kind, name=kind.value.title(), message=message, timestamp=at)
        changes = {"state": state, "state_type": kind, "run_count": starts}
        self.runs[run] = self.runs[run].model_copy(update=changes)
        self.states.setdefault(run, []).append(state)

    def read_flow_run_states(self, run: UUID) -> list[State]:
        return self.states[run]

    def read_flow_runs(self, flow_run_filter: Any, limit: int, offset: int = 0) -> list[FlowRun]:
        if self.is_away:
            raise httpx.ConnectError("away")
        if flow_run_filter.tags is not None:
            (tag,) = flow_run_filter.tags.all_
            return [run for run in self.runs.values() if tag in run.tags][offset:]
        return [self.runs[each] for each in flow_run_filter.id.any_]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    made = Server()

    @contextmanager
    def get_client(sync_client: bool) -> Iterator[Server]:
        yield made

    monkeypatch.setenv("LSM_STORE", str(tmp_path))
    monkeypatch.setattr(module, "get_client", get_client)
    monkeypatch.setattr(sizes, "get_client", get_client)
    monkeypatch.setattr(module, "run_deployment", made.ask)
    monkeypatch.setattr(module, "create_link_artifact", lambda *_, **__: None)
    monkeypatch.setattr(
        "flows.steps.results.stored_result", lambda _, identity: made.results.get(identity)
    )
    monkeypatch.setattr(module, "current_progress", Silent)
    return made


class Silent:
    def update(self, *_: object) -> None:
        """Say nothing."""


def submitted(models: list[Any]) -> tuple[Pool, Schedule]:
    cells = benchmark_cells("smoke", ["burgers"], models, [0])
    schedule = Schedule.of(cells)
    schedule.places = dict.fromkeys(schedule.plans(), "file:///there")
    suite = Suite(study="benchmark", preset="smoke", cells=cells, where="pool")
    pool = Pool(suite, Settings.from_environment(), {}, schedule)
    pool.begin()
    return pool, schedule


def test_what_is_in_the_store_is_not_asked_for(server: Server) -> None:
    (cell,) = benchmark_cells("smoke", ["burgers"], ["lsm"], [0])
    server.results[cell.identity] = result()
    pool, _ = submitted(["lsm"])
    assert server.runs == {}
    assert pool.seconds_between_looks == 0
    assert [outcome for _, outcome in pool.ended(None)] == [result()]


def test_a_cell_is_done_when_its_result_is_in_the_store(server: Server) -> None:
    pool, schedule = submitted(["lsm"])
    (run,) = server.runs
    assert pool.ended(None) == []
    server.set_state(run, StateType.COMPLETED)
    (identity,) = schedule.cells
    server.results[identity] = result()
    ((cell, outcome),) = pool.ended(None)
    assert (cell.identity, outcome) == (identity, result())
    assert pool.ended(None) == []


def test_a_run_that_another_has_in_hand_is_not_asked_for_again(server: Server) -> None:
    submitted(["lsm", "fno"])
    submitted(["lsm", "unet"])
    assert sorted(run.name for run in server.runs.values()) == [
        "burgers fno seed 0",
        "burgers lsm seed 0",
        "burgers unet seed 0",
    ]


def test_a_crash_is_final_after_the_last_start(server: Server) -> None:
    pool, _ = submitted(["lsm"])
    (run,) = server.runs
    server.set_state(run, StateType.CRASHED, starts=1)
    assert pool.ended(None) == []
    assert server.runs[run].state_type == StateType.CRASHED
    server.set_state(run, StateType.CRASHED, starts=3)
    ((_, outcome),) = pool.ended(None)
    assert "ended as Crashed: so it was" in str(outcome)


def test_a_crashed_run_whose_event_was_lost_is_brought_back_by_its_parent(server: Server) -> None:
    pool, _ = submitted(["lsm"])
    (run,) = server.runs
    server.set_state(run, StateType.CRASHED, starts=1, hours=0.1)
    assert pool.ended(None) == []
    assert server.runs[run].state_type == StateType.SCHEDULED


def test_a_run_that_dies_before_its_start_again_and_again_is_given_up(server: Server) -> None:
    pool, _ = submitted(["lsm"])
    (run,) = server.runs
    for _ in range(2):
        server.set_state(run, StateType.CRASHED, starts=0, hours=0.1)
        assert pool.ended(None) == []
        assert server.runs[run].state_type == StateType.SCHEDULED
    server.set_state(run, StateType.CRASHED, starts=0, hours=0.1)
    ((_, outcome),) = pool.ended(None)
    assert "ended as Crashed" in str(outcome)


@pytest.mark.parametrize(
    "error",
    [
        "ConnectError: [Errno 111] Connection refused",
        "ReadTimeout",
        "ConcurrencySlotAcquisitionError: Unable to acquire concurrency slots on ['tag:training']",
        "PrefectHTTPStatusError: Server error '500 Internal Server Error' for url 'http://...'",
        "StoreInterrupted: cannot write s3://lsm/.probe-1: EndpointConnectionError",
    ],
)
def test_a_run_that_lost_the_server_or_the_store_comes_back(error: str, server: Server) -> None:
    asked, _ = submitted(["lsm"])
    (run,) = server.runs
    told = f"Flow run encountered an exception: {error}"
    server.set_state(run, StateType.FAILED, starts=1, message=told)
    assert asked.ended(None) == []
    assert server.runs[run].state_type == StateType.FAILED  # the server itself brings it back
    server.set_state(run, StateType.FAILED, starts=1, hours=0.1, message=told)
    assert asked.ended(None) == []
    assert server.runs[run].state_type == StateType.SCHEDULED
    server.set_state(run, StateType.FAILED, starts=3, message=told)
    ((_, outcome),) = asked.ended(None)
    assert "ended as Failed" in str(outcome)


@pytest.mark.parametrize(
    "message",
    [
        "Flow run encountered an exception: ValueError: ConnectError",
        "Flow run encountered an exception: PrefectHTTPStatusError: Client error '404 Not Found'",
        "ConnectError: away",
    ],
)
def test_a_run_that_failed_by_itself_does_not(message: str, server: Server) -> None:
    asked, _ = submitted(["lsm"])
    (run,) = server.runs
    server.set_state(run, StateType.FAILED, starts=1, message=message)
    ((_, outcome),) = asked.ended(None)
    assert "ended as Failed" in str(outcome)


def test_a_job_is_as_large_as_its_cell_where_the_pool_knows_sizes(server: Server) -> None:
    submitted(["lsm"])
    server.variables = {"gpus": {"default": 1}, "memory": {"default": "16Gi"}, "cpu": {}}
    submitted(["fno"])
    server.variables["gpus"] = {"default": 0}  # a pool of processors
    submitted(["unet"])
    server.set_by_hand = {"memory": "64Gi"}
    submitted(["resnet"])
    given = [wanted["job_variables"] for wanted in server.asked]
    assert given == [{}, {"gpus": 1, "memory": "9Gi"}, {"memory": "9Gi"}, {}]


def test_the_memory_of_a_job_follows_from_its_data() -> None:
    (small,) = benchmark_cells("paper", ["burgers"], ["lsm"], [0])
    (large,) = benchmark_cells("paper", ["plasticity"], ["lsm"], [0])
    assert (sizes.memory_gib(small), sizes.memory_gib(large)) == (9, 10)


def test_a_failed_run_can_be_asked_for_again(server: Server) -> None:
    pool, _ = submitted(["lsm"])
    (run,) = server.runs
    server.set_state(run, StateType.FAILED)
    ((_, outcome),) = pool.ended(None)
    assert "ended as Failed" in str(outcome)
    submitted(["lsm"])
    assert len(server.runs) == 2


def test_what_was_cancelled_with_another_comparison_is_asked_for_by_this_one(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, schedule = submitted(["lsm"])
    (run,) = server.runs
    server.set_state(run, StateType.CANCELLED)
    monkeypatch.setattr(module, "_is_ours", lambda *_: False)
    assert pool.ended(None) == []
    assert len(schedule.ready()) == 1
    pool.begin()
    assert len(server.runs) == 2


def test_a_server_or_store_that_is_away_is_waited_for_and_nothing_is_forgotten(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, schedule = submitted(["lsm", "fno"])
    server.is_away = True
    assert pool.ended(None) == []
    server.is_away = False
    for run in list(server.runs):
        server.set_state(run, StateType.COMPLETED)
    first, second = schedule.cells
    answers = [result(), StoreInterrupted("away"), result()]

    def stored(_: object, identity: str) -> Result:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("flows.steps.results.stored_result", stored)
    assert [cell.identity for cell, _ in pool.ended(None)] == [first]
    assert [cell.identity for cell, _ in pool.ended(None)] == [second]
    monkeypatch.setattr(module, "LOST_SECONDS", -1.0)
    server.is_away = True
    monkeypatch.setattr(pool, "_children", {"x": (None, next(iter(server.runs.values())))})
    with pytest.raises(httpx.ConnectError):
        pool.ended(None)
