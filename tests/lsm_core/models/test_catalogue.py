from dataclasses import dataclass, fields

import pytest
import torch

from lsm_core.models.catalogue import MODELS, build_model, model_name
from lsm_core.models.lsm import paper_form
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import ModelName
from lsm_core.problems.shape import ProblemShape
from tests.lsm_core.models.small_configs import SMALL

# Millions of parameters in the paper's table of efficiency.
PUBLISHED: dict[ModelName, float] = {
    "unet": 4.332,
    "swin": 0.538,
    "fno": 2.368,
    "ufno": 3.990,
    "mwt": 3.106,
    "galerkin": 6.319,
    "uno": 1.307,
    "htnet": 3.285,
    "ffno": 0.218,
}
# Those whose published configuration is known or follows from its size.
EXACT: tuple[ModelName, ...] = ("unet", "fno", "ufno", "mwt", "ffno")


def n_millions(config) -> float:
    shape = ProblemShape(space=(256, 256), n_inputs=1, n_outputs=1)
    with torch.device("meta"):
        model = build_model(config, shape)
    return sum(parameter.numel() for parameter in model.parameters()) / 1e6


def test_every_model_but_the_measure_of_size_has_a_width_to_change():
    widths = {
        name: "width" in {field.name for field in fields(MODELS[name].config)} for name in MODELS
    }
    assert widths == {name: name != "lsm" for name in MODELS}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_is_as_large_as_in_the_papers_table(name):
    n_parameters = n_millions(MODELS[name].config())
    assert n_parameters == pytest.approx(PUBLISHED[name], rel=0.05)
    if name in EXACT:
        assert n_parameters == pytest.approx(PUBLISHED[name], abs=0.0006)


def test_the_papers_lsm_is_as_large_as_in_its_table():
    # Ours has 2.044 with what the text describes; what the 2 % are is not known.
    assert n_millions(paper_form()) == pytest.approx(2.002, rel=0.03)


@pytest.mark.parametrize("name", MODELS)
def test_a_configuration_knows_its_model(name):
    assert model_name(SMALL[name]) == name
    assert model_name(PointCloudConfig(body=SMALL[name])) == name


def test_a_configuration_of_no_model_is_refused():
    @dataclass(frozen=True)
    class StrangerConfig:
        width: int = 3

    shape = ProblemShape(space=(8,), n_inputs=2, n_outputs=1)
    with pytest.raises(ValueError, match="no model has a configuration of type StrangerConfig"):
        build_model(PointCloudConfig(body=StrangerConfig()), shape)


@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name].needs_history])
def test_a_model_of_time_steps_does_not_work_on_points(name):
    shape = ProblemShape(space=(30,), n_inputs=2, n_outputs=1)
    with pytest.raises(ValueError, match=f"{name} predicts time steps"):
        build_model(PointCloudConfig(body=SMALL[name]), shape)
