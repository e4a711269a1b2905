"""A trained model on other grids than its own."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lsm_core.models.catalogue import build_model
from lsm_core.models.ffno import FfnoConfig
from lsm_core.models.fno import FnoConfig
from lsm_core.models.lsm_ours import LsmOursConfig
from lsm_core.problems.shape import ProblemShape
from lsm_core.problems.variable import Variable
from lsm_core.surrogates.normalization import Normalization
from lsm_core.surrogates.predictor import Predictor, TrainedModel, at_grid
from lsm_core.surrogates.surrogate import Surrogate

PADDED = FnoConfig(width=4, n_modes=3, n_layers=2, head_width=4, padding=4)


def predictor_of(config: FnoConfig, size: int) -> Predictor:
    torch.manual_seed(0)
    shape = ProblemShape(space=(size, size), n_inputs=1, n_outputs=1)
    scales = (Normalization(torch.zeros(1), torch.ones(1)) for _ in range(2))
    weights = Surrogate(build_model(config, shape), *scales).state_dict()
    a, u = (
        Variable(name=name, dims=("x", "y"), shape=(size, size), role=role, description="")
        for name, role in (("a", "input"), ("u", "target"))
    )
    model = TrainedModel(
        benchmark="mine",
        model_name="fno",
        model=config,
        space=("x", "y"),
        n_steps=1,
        inputs=(a,),
        targets=(u,),
    )
    return Predictor(model, weights)


def test_padding_is_the_same_part_of_a_finer_grid() -> None:
    predictor = predictor_of(PADDED, 8)
    for size, padded in ((8, 12), (16, 24), (32, 48)):
        operator = predictor.surrogate({"x": size, "y": size}).model
        assert operator.network.padded == (padded, padded)


def test_a_padded_model_answers_nearly_the_same_on_a_finer_grid() -> None:
    predictor = predictor_of(replace(PADDED, padding=16), 32)

    def answer(size: int) -> Any:
        turn = 2 * np.pi * np.arange(size) / size
        field = (np.sin(turn) * np.cos(turn)[:, None]).astype(np.float32)
        return predictor({"a": field[None]})["u"][0, :: size // 32, :: size // 32]

    own, finer = answer(32), answer(64)
    assert np.linalg.norm(own - finer) < 0.15 * np.linalg.norm(own - own.mean())


def test_only_padding_changes_with_the_grid_and_only_on_another() -> None:
    assert at_grid(PADDED, (8, 8), (8, 8)) == PADDED
    assert at_grid(FfnoConfig(padding=0), (8, 8), (16, 8)) == FfnoConfig(padding=0)
    assert at_grid(LsmOursConfig(), (8, 8), (16, 16)) == LsmOursConfig()
    with pytest.raises(ValueError, match="finer by the same factor along all axes"):
        at_grid(PADDED, (8, 8), (16, 8))


def test_a_model_whose_variables_lack_its_axes_is_refused_in_a_sentence() -> None:
    model = replace(predictor_of(PADDED, 8).model, space=("x", "z"))
    with pytest.raises(ValueError, match="no variable of mine has all axes x, z"):
        model.grid  # noqa: B018 - the property itself refuses
