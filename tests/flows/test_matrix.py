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
from prefect.states import Completed

from flows import matrix as matrix_module
from flows.errors import BadInput, GenerationFailed
from flows.matrix import _waves
from flows.progress import shown_progress
from flows.server_loss import ServerLosses, is_server_loss
from flows.services import free_port
from flows.settings import Settings
from flows.steps.cells import benchmark_cells, bound, chosen_cell
from lsm_core.experiments.data_plan import DataPlan
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.study import study_cells
from storage.claims import Claim, Claims
from storage.errors import ClaimLost, StoreInterrupted, StoreUnavailable
from storage.location import Location


def test_sources_are_trained_before_what_starts_from_them_and_each_cell_once() -> None:
    cells = [bound(cell.experiment) for cell in study_cells("transfer", "smoke", [0], ["lsm"])]
    waves = _waves([*cells, cells[0]])
    assert len(waves) == 2
    first = {cell.identity for cell in waves[0]}
    for cell in waves[1]:
        assert cell.start is not None
        assert cell.start.identity in first
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
    assert tuned.start is not None
    assert isinstance(tuned.start.source, Experiment)
    assert tuned.start.source.code == tuned.code != ""
    other = chosen_cell("smoke", "airfoil", "lsm", 0, source="0123456789abcdef")
    assert other.start is not None
    assert other.start.identity == "0123456789abcdef"
    plain = chosen_cell("smoke", "airfoil", "lsm", 0)
    assert len({tuned.identity, other.identity, plain.identity}) == 3
    changed = replace(tuned, start=replace(tuned.start, frozen=()))
    assert changed.protocol != tuned.protocol


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


def test_what_prefect_keeps_of_a_matrix_holds_no_settings() -> None:
    from flows.matrix import matrix

    # Addresses of databases among them may hold passwords, and Prefect shows parameters.
    assert set(inspect.signature(matrix.fn).parameters) == {
        "cells",
        "suite",
        "threads",
        "at_once",
        "names",
        "register",
    }


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
        self.state = Completed()
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
    stored = {"suite": "resolutions-burgers-smoke", "setting": "lsm at 64", "model": "lsm"}

    def done(possible: list[Experiment], *_: Any) -> Iterator[tuple[Experiment, Task]]:
        for cell in possible:
            yield cell, Task({**stored, "identity": cell.identity})

    monkeypatch.setattr(matrix_module, "_shared_out", done)
    monkeypatch.setattr(matrix_module, "generate_dataset", lambda *_: "file:///there")
    monkeypatch.setenv("LSM_STORE", str(tmp_path))
    settings = Settings.from_environment()
    (result,) = matrix_module.run_cells(cells, settings, "benchmark-smoke", 1, names=names)
    assert (result["suite"], result["setting"]) == ("benchmark-smoke", called)


def test_cells_that_others_hold_are_taken_last_and_lost_ones_again(tmp_path: Path) -> None:
    cells = benchmark_cells("smoke", ["burgers"], ["lsm", "fno", "unet"], [0])
    claims, others = Claims(Location.parse(str(tmp_path))), Claims(Location.parse(str(tmp_path)))
    theirs = others.take(cells[0].identity)
    assert theirs is not None
    begun: list[str] = []

    def submit(cell: Experiment, claim: Claim) -> Any:
        if cell is cells[1] and cell.identity not in begun:
            begun.append(cell.identity)
            return Task(ClaimLost("taken for dead"))
        if len(begun) == 2:
            raise_once = interruptions.pop() if interruptions else None
            if raise_once is not None:
                raise raise_once
        begun.append(cell.identity)
        if len(begun) == 3:
            theirs.give_back()
        return Task()

    interruptions: list[Exception] = [StoreInterrupted("away for a moment")]
    with shown_progress():
        order = [cell.model_name for cell, _ in matrix_module._shared_out(cells, claims, 1, submit)]
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

    def submit(cell: Experiment, claim: Claim) -> Any:
        begun.append(cell.model_name)
        return Task(losses.pop() if losses else None)

    claims = Claims(Location.parse(str(tmp_path)))
    order = [cell.model_name for cell, _ in matrix_module._shared_out(cells, claims, 1, submit)]
    assert sorted(order) == ["fno", "lsm"]
    assert len(begun) == 4
    with pytest.raises(httpx.ConnectError):
        list(matrix_module._shared_out(cells, claims, 1, lambda *_: Task(refused())))  # type: ignore[arg-type, return-value]
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
