"""Cells that compute in another way than their preset."""

from flows.steps.training.cells import benchmark_cells, changed, computing, in_words
from lsm_core.experiments.experiment import Experiment
from lsm_core.studies.catalogue import study_cells


def test_another_precision_is_another_run_with_a_name_of_its_own() -> None:
    changes = computing("tf32", compiled=True)
    (plain,) = benchmark_cells("smoke", ["darcy"], ["lsm"], [0])
    (other,) = benchmark_cells("smoke", ["darcy"], ["lsm"], [0], changes)
    assert (other.training.precision, other.training.compile) == ("tf32", True)
    assert other.identity != plain.identity
    assert in_words(changes) == "precision tf32, compile True"
    assert in_words(changes, "width 8") == "width 8, precision tf32, compile True"


def test_what_is_not_asked_for_stays_as_the_preset_has_it() -> None:
    assert computing(None, compiled=False) == {}
    (plain,) = benchmark_cells("smoke", ["darcy"], ["lsm"], [0])
    (same,) = benchmark_cells("smoke", ["darcy"], ["lsm"], [0], computing(None, compiled=False))
    assert same.identity == plain.identity


def test_what_a_cell_starts_from_is_computed_in_the_same_way() -> None:
    cells = study_cells("transfer", "smoke")
    started = [cell.experiment for cell in cells if cell.experiment.start]
    assert started
    for experiment in started:
        other = changed(experiment, computing("bfloat16", compiled=False))
        assert other.start is not None
        assert isinstance(other.start.source, Experiment)
        assert other.start.source.training.precision == "bfloat16"
