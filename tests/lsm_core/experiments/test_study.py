from typing import get_args

import pytest

from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.operator import build_operator
from lsm_core.experiments.study import FRACTIONS, STUDIES, study_cells
from lsm_core.models.lsm import LsmConfig
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import StudyName


def test_every_study_that_has_a_name_is_there() -> None:
    assert set(STUDIES) == set(get_args(StudyName))


@pytest.mark.parametrize("name", STUDIES)
def test_cells_have_names_and_identities_of_their_own_and_can_be_built(name: StudyName) -> None:
    cells = study_cells(name, "smoke", [0])
    assert len({cell.setting for cell in cells}) + (name == "ablations") * 11 == len(cells)
    identities = {cell.experiment.identity for cell in cells}
    # The full model is a row of both ablation tables and of all sweeps.
    assert len(identities) >= len(cells) - 2
    for cell in cells:
        build_operator(cell.experiment)


@pytest.mark.parametrize("preset", ["quick", "paper", "release"])
def test_larger_presets_have_the_same_studies(preset: str) -> None:
    for name in STUDIES:
        assert study_cells(name, preset, [0])


def test_seeds_repeat_a_study() -> None:
    one, two = (study_cells("burgers-forms", "smoke", seeds) for seeds in ([0], [0, 1]))
    assert len(two) == 2 * len(one)
    assert {cell.experiment.seed for cell in two} == {0, 1}


def test_transfer_starts_from_the_pipe_model_on_nested_parts_of_the_data() -> None:
    cells = study_cells("transfer", "smoke", [3])
    tuned = [cell.experiment for cell in cells if "fine-tuned" in cell.setting]
    scratch = [cell.experiment for cell in cells if "scratch" in cell.setting]
    assert [cell.training.fraction for cell in tuned] == list(FRACTIONS)
    assert all(cell.start is None for cell in scratch)
    for cell in tuned:
        assert cell.start is not None
        assert isinstance(cell.start.source, Experiment)
        assert cell.start.source.data.benchmark.name == "pipe"
        assert cell.start.source.seed == 3
    assert len({cell.identity for cell in (*tuned, *scratch)}) == len(cells)


def test_ablations_on_points_change_the_body_inside_the_wrapper() -> None:
    cells = [
        cell.experiment
        for cell in study_cells("ablations", "smoke", [0])
        if cell.experiment.data.benchmark.name == "elasticity_p"
    ]
    bodies = [cell.model.body for cell in cells if isinstance(cell.model, PointCloudConfig)]
    assert len(bodies) == len(cells)
    assert all(isinstance(body, LsmConfig) for body in bodies)
    assert len(set(bodies)) == len(bodies)
