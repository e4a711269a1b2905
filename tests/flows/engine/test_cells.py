"""Cells of a suite: which may begin when, and what becomes of the others; nothing is trained."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.exceptions import PrefectHTTPStatusError

from flows.benchmark import lsm
from flows.engine import cells as engine
from flows.engine.own_server import free_port
from flows.engine.progress import show_progress
from flows.engine.schedule import Schedule, cell_name, steps_of
from flows.engine.server_loss import is_server_loss
from flows.engine.suite import Suite
from flows.errors import BadInput, GenerationFailed
from flows.settings import Settings
from flows.steps.training.cells import (
    benchmark_cells,
    bind,
    chosen_cell,
    failed,
    keep_cell,
    kept_cell,
)
from flows.train import train
from lsm_core.experiments.experiment import BoundExperiment
from lsm_core.result import Failure
from lsm_core.studies.catalogue import study_cells
from storage.errors import StoreInterrupted
from storage.location import Location
from tests.lsm_core.reporting.results import result


def transfer_cells() -> list[BoundExperiment]:
    return [bind(cell.experiment) for cell in study_cells("transfer", "smoke", [0], ["lsm"])]


def with_data(schedule: Schedule) -> Schedule:
    schedule.places = dict.fromkeys(schedule.plans(), "file:///there")
    return schedule


def test_sources_are_trained_before_what_starts_from_them_and_each_cell_once() -> None:
    cells = transfer_cells()
    schedule = with_data(Schedule.of([*cells, cells[0]]))
    assert len(schedule.cells) == len(cells) + 1  # the pipe model, once for all
    first = schedule.ready()
    (source,) = (cell for cell in first if schedule.is_source(cell))
    assert first[0] is source
    assert source.benchmark.name == "pipe"
    schedule.begun.update(cell.identity for cell in first)
    assert schedule.ready() == []
    schedule.end(source, result(identity=source.identity))
    waited = schedule.ready()
    assert {cell.source_identity for cell in waited} == {source.identity}
    assert len(first) + len(waited) == len(schedule.cells)


def test_a_cell_begins_when_its_own_data_is_there() -> None:
    cells = benchmark_cells("smoke", ["burgers", "darcy"], ["lsm", "fno"], [0])
    schedule = Schedule.of(cells)
    assert schedule.ready() == []
    assert schedule.awaits_data()
    darcy = next(cell.dataset for cell in cells if cell.benchmark.name == "darcy")
    schedule.places[darcy] = "file:///there"
    assert {cell.benchmark.name for cell in schedule.ready()} == {"darcy"}
    assert schedule.awaits_data()


def test_the_longest_cells_begin_first() -> None:
    cells = benchmark_cells("smoke", ["burgers", "darcy", "plasticity"], ["lsm"], [0])
    lengths = [steps_of(cell) for cell in with_data(Schedule.of(cells)).ready()]
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) == 3


def test_a_run_that_fails_fails_what_starts_from_it() -> None:
    cells = transfer_cells()
    schedule = with_data(Schedule.of(cells))
    source = next(cell for cell in schedule.ready() if schedule.is_source(cell))
    schedule.end(source, failed(source, RuntimeError("no memory")))
    lost = [cell for cell in cells if cell.source_identity == source.identity]
    assert lost
    for cell in lost:
        outcome = schedule.outcomes[cell.identity]
        assert isinstance(outcome, Failure)
        assert outcome.error == f"RuntimeError: its source {source.identity} failed"
    assert not schedule.is_done()


def test_data_that_cannot_be_made_stops_only_its_own_cells() -> None:
    cells = benchmark_cells("smoke", ["burgers", "darcy"], ["lsm", "fno"], [0])
    schedule = Schedule.of(cells)
    recipe = cells[0].dataset
    schedule.end_without_data(recipe, GenerationFailed("no seed converges"))
    stopped = {cell.benchmark.name for cell in cells if cell.identity in schedule.outcomes}
    assert stopped == {"burgers"}
    assert not schedule.is_done()


@pytest.mark.parametrize(("names", "called"), [((), ""), (("released form",), "released form")])
def test_a_run_that_another_suite_trained_first_is_called_as_it_is_asked_for(
    names: tuple[str, ...], called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = benchmark_cells("smoke", ["burgers"], ["lsm"], [0])
    monkeypatch.setenv("LSM_STORE", str(tmp_path))
    suite = Suite(study="benchmark", preset="smoke", cells=cells, names=names, at_once=1)
    stored = result(study="resolutions-burgers", preset="smoke", setting="lsm at 64")

    def run(schedule: Schedule, *_: object) -> Iterator[tuple[BoundExperiment, Any]]:
        yield from ((cell, stored) for cell in schedule.cells.values())

    monkeypatch.setattr(engine, "_run", run)
    with show_progress():
        (outcome,) = engine.run_cells(suite, Settings.from_environment())
    assert (outcome.suite, outcome.setting) == ("benchmark-smoke", called)


def test_a_kept_cell_is_the_same_run_elsewhere(tmp_path: Path) -> None:
    root = Location.parse(str(tmp_path))
    tuned = chosen_cell(
        "smoke", "airfoil", "lsm", 3, source="pipe", training={"fraction": 0.2}, frozen=["lift"]
    )
    from_a_run = chosen_cell("smoke", "airfoil", "lsm", 0, source="0123456789abcdef")
    for cell in (tuned, from_a_run, *benchmark_cells("smoke", None, ["lsm", "fno"], [1])):
        keep_cell(cell, root)
        assert kept_cell(cell.identity, root) == cell


def test_a_worker_with_other_sources_refuses_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Location.parse(str(tmp_path))
    (cell,) = benchmark_cells("smoke", ["burgers"], ["lsm"], [0])
    keep_cell(cell, root)
    monkeypatch.setattr("flows.steps.training.cells.code_digest", lambda *_: "other")
    with pytest.raises(BadInput, match=f"asked for as {cell.identity}; give it the version"):
        kept_cell(cell.identity, root)
    with pytest.raises(BadInput, match="is not there; submit the comparison"):
        kept_cell("0123456789abcdef", root)
    (root / "experiments" / "0123456789abcdef.json").write_bytes(b"{}")
    with pytest.raises(BadInput, match="written by another version"):
        kept_cell("0123456789abcdef", root)


def test_cells_are_called_by_problem_model_or_setting_and_seed() -> None:
    (cell,) = benchmark_cells("smoke", ["burgers"], ["lsm"], [4])
    assert cell_name(cell) == "burgers lsm seed 4"
    assert cell_name(cell, "no attention") == "burgers no attention seed 4"


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
