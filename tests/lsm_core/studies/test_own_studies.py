"""Studies of LSM (ours): the paper's length for every model, and its parts one by one."""

import pytest

from lsm_core.experiments.presets import experiment
from lsm_core.models.lsm_ours import LsmOursConfig
from lsm_core.names import BenchmarkName
from lsm_core.studies.catalogue import study_cells
from lsm_core.studies.cells import FULL_LENGTH


@pytest.mark.parametrize("benchmark", ["burgers", "darcy", "elasticity_g"])
def test_a_training_at_length_has_the_updates_of_the_paper(benchmark: BenchmarkName) -> None:
    for cell in study_cells("full-length", "night", benchmarks=[benchmark]):
        experiment = cell.experiment
        a_epoch = -(-experiment.data.n_train // experiment.training.batch_size)
        assert experiment.training.epochs * a_epoch == FULL_LENGTH


def test_all_models_are_trained_alike_at_length() -> None:
    cells = study_cells("full-length", "night", benchmarks=["burgers"])
    assert [cell.setting for cell in cells] == ["lsm_ours", "fno", "lsm"]
    assert len({(cell.experiment.training, cell.experiment.data) for cell in cells}) == 1


def test_budgets_are_parts_of_the_epochs_up_to_the_main_table() -> None:
    cells = study_cells("budgets", "night", models=["fno"], benchmarks=["darcy"])
    assert [cell.setting for cell in cells] == [f"fno, {n} epochs" for n in (2, 5, 10, 20)]
    assert cells[-1].experiment == experiment("night", "darcy", "fno", 0)


def test_short_budgets_are_trained_once() -> None:
    cells = study_cells("budgets", "smoke", models=["fno"], benchmarks=["burgers"])
    epochs = [cell.experiment.training.epochs for cell in cells]
    assert sorted(set(epochs)) == epochs
    assert epochs[0] >= 1


def test_each_ablation_differs_from_the_whole_in_one_setting() -> None:
    cells = [
        cell
        for cell in study_cells("ablations-ours", "quick", [0])
        if cell.experiment.benchmark.name == "darcy"
    ]
    whole = next(cell.experiment.model for cell in cells if cell.setting == "whole")
    assert isinstance(whole, LsmOursConfig)
    for cell in cells:
        differing = [
            name
            for name, value in vars(whole).items()
            if getattr(cell.experiment.model, name) != value
        ]
        assert len(differing) == (cell.setting != "whole")
    assert len({cell.experiment.model for cell in cells}) == len(cells)
