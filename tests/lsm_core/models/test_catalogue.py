from dataclasses import asdict
from typing import get_args

import pytest
import torch

from lsm_core.models.catalogue import MODELS, build_model
from lsm_core.names import ModelName
from lsm_core.problems.shape import ProblemShape


def test_the_table_has_every_name_that_users_see():
    assert set(MODELS) == set(get_args(ModelName))


@pytest.mark.parametrize("space", [(32,), (16, 20), (16, 16, 16)])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_keeps_to_the_contract(name, space):
    config_class, model_class = MODELS[name]
    shape = ProblemShape(space=space, n_inputs=2, n_outputs=3)
    model = build_model(config_class(), shape).eval()
    assert isinstance(model, model_class)
    with torch.no_grad():
        assert model(torch.randn(1, *space, 2)).shape == (1, *space, 3)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_configuration_is_plain_data(name):
    def plain(value):
        if isinstance(value, dict):
            return all(isinstance(key, str) and plain(entry) for key, entry in value.items())
        if isinstance(value, tuple):
            return all(map(plain, value))
        return value is None or isinstance(value, int | float | str | bool)

    assert plain(asdict(MODELS[name][0]()))
