"""A matrix of cells, planned without training anything."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.exceptions import PrefectHTTPStatusError

from flows.benchmark import lsm
from flows.engine import matrix as matrix_module
from flows.engine.matrix import _waves
from flows.engine.own_server import free_port
from flows.engine.progress import show_progress
from flows.engine.server_loss import ServerLosses, is_server_loss
from flows.engine.suite import Suite
from flows.errors import BadInput, GenerationFailed
from flows.settings import Settings
from flows.steps.training.cells import benchmark_cells, bind, chosen_cell
from flows.train import train
from lsm_core.experiments.experiment import BoundExperiment
from lsm_core.experiments.plans import DataPlan
from lsm_core.result import Failure
from lsm_core.studies.catalogue import study_cells
from storage.errors import LeaseLost, StoreInterrupted, StoreUnavailable
from storage.location import Location
from storage.runs.leases import Lease, Leases
from tests.lsm_core.reporting.results import result


def test_sources_are_trained_before_what_starts_from_them_and_each_cell_once() -> None:
    cells = [bind(cell.experiment) for cell in study_cells("transfer", "smoke", [0], ["lsm"])]
    waves = _waves([*cells, cells[0]])
    assert len(waves) == 2
    first = {cell.identity for cell in waves[0]}
    for cell in waves[1]:
        assert cell.source_identity in first
    assert len(first) + len(waves[1]) == len(cells) + 1  # the pipe model, once for all


def test_a_benchmark_leaves_out_pairs_that_do_not_go_together() -> None:
    cells = benchmark_cells("smoke", ["darcy", "navier_stokes"], ["lsm", "kno"], [0, 1])
    pairs = {(cell.data.benchmark.name, cell.model_name) for cell in cells}
    assert pairs == {("darcy", "lsm"), ("navier_stokes", "lsm"), ("navier_stokes", "kno")}
    assert len(cells) == 6
    with pytest.raises(BadInput, match="made for navier_stokes, not for darcy"):
        benchmark_cells("smoke", ["darcy"], ["tfnet"], [0])


def test_a_source_is_a_benchmark_or_a_run_and_settings_have_names() -> None:
    tuned = chosen_cell(
        "smoke", "airfoil", "lsm", 0, source="pipe", training={"fraction": 0.2}, frozen=["lift"]
    )
    assert isinstance(tuned.source, BoundExperiment)
    assert tuned.source.code == tuned.code != ""
    other = chosen_cell("smoke", "airfoil", "lsm", 0, source="0123456789abcdef")
    assert other.source_identity == "0123456789abcdef"
    plain = chosen_cell("smoke", "airfoil", "lsm", 0)
    assert len({tuned.identity, other.identity, plain.identity}) == 3
    made = tuned.experiment
    assert made.start is not None
    assert replace(made, start=replace(made.start, frozen=())).protocol != made.protocol


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"training": {"epoch": 3}}, "unexpected keyword argument 'epoch'"),
        ({"training": {"fraction": 1.5}}, "fraction must be above 0 and at most 1"),
        ({"frozen": ["lift"]}, "only parts of a model that starts from another run"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        chosen_cell("smoke", "darcy", "lsm", 0, **changes)


@pytest.mark.parametrize("flow", [lsm, train])
def test_what_prefect_keeps_of_a_flow_holds_no_settings(flow: Any) -> None:
    # Addresses of databases among them may hold passwords, and Prefect shows parameters.
    parameters = inspect.signature(flow.fn).parameters.values()
    assert not any("Settings" in str(parameter.annotation) for parameter in parameters)


def test_a_dataset_that_cannot_be_made_stops_only_its_own_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = benchmark_cells("smoke", ["burgers", "darcy"], ["lsm", "fno"], [0])

    def made(plan: DataPlan, settings: Settings) -> str:
        if plan.benchmark.name == "burgers":
            raise GenerationFailed("no seed converges")
        return "file:///there"

    monkeypatch.setattr(matrix_module, "generate_dataset", made)
    places, broken = matrix_module._prepared(cells, Settings.from_environment())
    assert set(broken) == {cell.dataset for cell in cells if cell.data.benchmark.name == "burgers"}
    assert set(places.values()) == {"file:///there"}

    def full(plan: DataPlan, settings: Settings) -> str:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(matrix_module, "generate_dataset", full)
    with pytest.raises(StoreUnavailable):
        matrix_module._prepared(cells, Settings.from_environment())


class Task:
    """A task that ends when it is told to, as a future of Prefect does."""

    def __init__(self, outcome: Any = None) -> None:
        self.outcome = outcome
        self.tell: Callable[[Any], None] | None = None

    def add_done_callback(self, tell: Callable[[Any], None]) -> None:
        self.tell = tell
        tell(self)

    def result(self, raise_on_failure: bool = True) -> Any:
        return self.outcome


@pytest.mark.parametrize(("names", "called"), [((), ""), (("released form",), "released form")])
def test_a_run_that_another_suite_trained_first_is_called_as_it_is_asked_for(
    names: tuple[str, ...], called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = benchmark_cells("smoke", ["burgers"], ["lsm"], [0])
    monkeypatch.setenv("LSM_STORE", str(tmp_path))
    suite = Suite(study="benchmark", preset="smoke", cells=cells, names=names, at_once=1)
    stored = result(study="resolutions-burgers", preset="smoke", setting="lsm at 64")
    monkeypatch.setattr(matrix_module, "_shared_out", ending_with(stored))
    monkeypatch.setattr(matrix_module, "generate_dataset", lambda *_: "file:///there")
    (outcome,) = matrix_module.run_cells(suite, Settings.from_environment())
    assert (outcome.suite, outcome.setting) == ("benchmark-smoke", called)


def test_a_run_that_fails_fails_what_starts_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [chosen_cell("smoke", "airfoil", "lsm", 0, source="pipe")]
    monkeypatch.setenv("LSM_STORE", str(tmp_path))
    monkeypatch.setattr(matrix_module, "_shared_out", ending_with(RuntimeError("no memory")))
    monkeypatch.setattr(matrix_module, "generate_dataset", lambda *_: "file:///there")
    suite = Suite(study="train", preset="smoke", cells=cells, at_once=1)
    (outcome,) = matrix_module.run_cells(suite, Settings.from_environment())
    assert isinstance(outcome, Failure)
    assert cells[0].source is not None
    assert outcome.error == f"RuntimeError: its source {cells[0].source_identity} failed"


def ending_with(outcome: Any) -> Callable[..., Iterator[tuple[BoundExperiment, Any]]]:
    """Return a way to share out cells of which each ends in the same way."""
    return lambda possible, *_: ((cell, outcome) for cell in possible)


def test_cells_that_others_hold_are_taken_last_and_lost_ones_again(tmp_path: Path) -> None:
    cells = benchmark_cells("smoke", ["burgers"], ["lsm", "fno", "unet"], [0])
    leases, others = Leases(Location.parse(str(tmp_path))), Leases(Location.parse(str(tmp_path)))
    theirs = others.acquire(cells[0].identity)
    assert theirs is not None
    begun: list[str] = []

    def submit(cell: BoundExperiment, lease: Lease) -> Any:
        if cell is cells[1] and cell.identity not in begun:
            begun.append(cell.identity)
            return Task(LeaseLost("taken for dead"))
        if len(begun) == 2:
            raise_once = interruptions.pop() if interruptions else None
            if raise_once is not None:
                raise raise_once
        begun.append(cell.identity)
        if len(begun) == 3:
            theirs.release()
        return Task()

    interruptions: list[Exception] = [StoreInterrupted("away for a moment")]
    with show_progress():
        order = [cell.model_name for cell, _ in matrix_module._shared_out(cells, leases, 1, submit)]
    assert sorted(order) == ["fno", "lsm", "unet"]
    assert order[-1] == "lsm"
    assert begun.count(cells[1].identity) == 2
    assert Location.parse(str(tmp_path)).names() == []


def test_cells_that_were_lost_with_the_server_are_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = benchmark_cells("smoke", ["burgers"], ["lsm", "fno"], [0])
    monkeypatch.setattr(matrix_module, "ServerLosses", partial(ServerLosses, pause=0.0, most=2))
    losses = [refused(), ConcurrencySlotAcquisitionError("no slot")]
    begun: list[str] = []

    def submit(cell: BoundExperiment, lease: Lease) -> Any:
        begun.append(cell.model_name)
        return Task(losses.pop() if losses else None)

    leases = Leases(Location.parse(str(tmp_path)))
    order = [cell.model_name for cell, _ in matrix_module._shared_out(cells, leases, 1, submit)]
    assert sorted(order) == ["fno", "lsm"]
    assert len(begun) == 4
    with pytest.raises(httpx.ConnectError):
        list(matrix_module._shared_out(cells, leases, 1, lambda *_: Task(refused())))  # type: ignore[arg-type, return-value]
    assert Location.parse(str(tmp_path)).names() == []

    def made(plan: DataPlan, settings: Settings) -> str:
        raise refused()

    monkeypatch.setattr(matrix_module, "generate_dataset", made)
    with pytest.raises(httpx.ConnectError):
        matrix_module._prepared(cells, Settings.from_environment())


def refused() -> httpx.ConnectError:
    """Return the error of a server that is not there."""
    with pytest.raises(httpx.ConnectError) as error:
        httpx.get(f"http://127.0.0.1:{free_port()}")
    return error.value


def test_only_what_the_server_is_to_blame_for_is_its_loss() -> None:
    assert is_server_loss(refused())
    for code, expected in ((503, True), (404, False)):
        answer = httpx.Response(code, request=httpx.Request("GET", "http://127.0.0.1"))
        assert (
            is_server_loss(PrefectHTTPStatusError("no", request=answer.request, response=answer))
            is expected
        )
    assert not is_server_loss(StoreInterrupted("of the store"))
    assert not is_server_loss({"identity": "a result"})
