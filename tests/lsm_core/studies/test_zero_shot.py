"""Trained on a coarse grid and asked on finer ones, by the same weights."""

import pytest
import torch

from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.trial import Trial
from lsm_core.studies.catalogue import LATER_MODELS, study_cells
from lsm_core.training.batches import BatchesInMemory, Fields, SplitFields, permutations


def fields_of(cell: Experiment) -> SplitFields:
    """Return random fields of the shape of an experiment."""
    shape, generator = cell.benchmark.shape, torch.Generator().manual_seed(0)

    def part(n_samples: int) -> Fields:
        sizes = (n_samples, *shape.space)
        return Fields(
            torch.rand(*sizes, shape.n_inputs, generator=generator),
            1 + torch.rand(*sizes, shape.n_outputs, generator=generator),
        )

    train = part(4)
    parts = {"train": [train], "validation": [part(1)], "test": [part(2)]}
    return SplitFields(BatchesInMemory(train, 4, permutations(4, seed=0)), parts, in_memory=True)


def test_the_grids_are_those_of_the_study_and_the_samples_are_the_same() -> None:
    cells = study_cells("zero-shot-darcy", "quick", [0], ["lno"])
    sizes = [cell.experiment.benchmark.shape.space for cell in cells]
    assert sizes == [(43, 43), (85, 85), (211, 211)]
    assert [cell.setting for cell in cells][1:] == [
        "lno trained at 43, asked at 85",
        "lno trained at 43, asked at 211",
    ]
    coarse, *asked = [cell.experiment for cell in cells]
    for each in asked:
        assert each.start is not None
        assert each.start.source == coarse
        plans = (each.data, coarse.data)
        first = [plan.seed_of(plan.n_train + plan.n_validation) for plan in plans]
        assert first[0] == first[1]
        assert each.data.n_test == coarse.data.n_test
    default = {cell.experiment.model_name for cell in study_cells("zero-shot-darcy", "quick")}
    assert set(LATER_MODELS) < default


def test_waves_keep_the_lengths_that_were_trained() -> None:
    cells = study_cells("zero-shot-darcy", "quick", [0], ["fno"])
    padding = [getattr(cell.experiment.model, "padding", None) for cell in cells]
    assert padding == [8, 16, 39]  # eight of 43 points


def test_burgers_is_asked_at_4_and_16_times_as_many_points_of_the_same_functions() -> None:
    coarse, *asked = (
        cell.experiment for cell in study_cells("zero-shot-burgers", "night", [0], ["lsm_ours"])
    )
    assert [cell.benchmark.shape.space for cell in (coarse, *asked)] == [(256,), (1024,), (4096,)]
    every_fourth = asked[0].benchmark.generate(7)["final"][::4]
    assert every_fourth == pytest.approx(coarse.benchmark.generate(7)["final"])


@pytest.mark.parametrize("study", ["zero-shot-darcy", "zero-shot-burgers"])
@pytest.mark.parametrize("model", [*LATER_MODELS, "fno", "lsm", "lsm_ours"])
def test_the_weights_that_are_asked_are_those_that_were_trained(model, study) -> None:
    coarse, finer, _ = (cell.experiment for cell in study_cells(study, "smoke", [0], [model]))
    trained = Trial(coarse, fields_of(coarse), torch.device("cpu"))
    weights = {name: value.clone() for name, value in trained.surrogate.state_dict().items()}
    asked = Trial(finer, fields_of(finer), torch.device("cpu"), weights)
    assert list(asked.fit()) == []
    for name, value in asked.surrogate.state_dict().items():
        assert torch.equal(value, weights[name]), name
    predicted = asked.predict_first(1)
    assert tuple(predicted.shape[1:-1]) == finer.benchmark.shape.space
    assert predicted.isfinite().all()


def test_a_model_that_is_tied_to_its_grid_says_so() -> None:
    coarse, finer, _ = (
        cell.experiment for cell in study_cells("zero-shot-darcy", "smoke", [0], ["ridge"])
    )
    trained = Trial(coarse, fields_of(coarse), torch.device("cpu"))
    with pytest.raises(ValueError, match="tied to its grid"):
        Trial(finer, fields_of(finer), torch.device("cpu"), trained.surrogate.state_dict())
