"""A matrix of cells, planned without training anything."""

from dataclasses import replace

import pytest

from flows.errors import BadInput
from flows.matrix import _waves
from flows.steps.cells import benchmark_cells, bound, chosen_cell
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.study import study_cells


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
