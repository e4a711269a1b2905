from itertools import pairwise
from math import pi

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.models.uno import Uno, UnoConfig
from lsm_core.problems.shape import ProblemShape

GRIDS = st.one_of(
    st.tuples(st.integers(3, 40)),
    st.tuples(st.integers(3, 20), st.integers(3, 20)),
    st.tuples(st.integers(3, 9), st.integers(3, 9), st.integers(3, 9)),
)


def n_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_size_is_within_two_percent_of_the_paper():
    model = Uno(UnoConfig(), ProblemShape(space=(256, 256), n_inputs=1, n_outputs=1))
    assert n_parameters(model) == 1_331_217
    assert n_parameters(model) == pytest.approx(1.307e6, rel=0.02)


@pytest.mark.parametrize("space", [(64,), (16, 16, 16)])
def test_the_size_in_other_dimensions_follows_from_the_blocks(space):
    model = Uno(UnoConfig(width=4, n_modes=3), ProblemShape(space=space, n_inputs=1, n_outputs=1))
    n_dims = len(space)
    blocks = [(4, 8, 3), (8, 16, 2), (16, 16, 2), (16, 8, 2), (16, 4, 3)]
    expected = sum(
        2 * 2 ** (n_dims - 1) * modes**n_dims * before * after + before * after + after
        for before, after, modes in blocks
    )
    expected += (1 + n_dims) * 4 + 4 + 8 * 128 + 128 + 128 + 1
    assert n_parameters(model) == expected


@settings(max_examples=12, deadline=None)
@given(GRIDS, st.integers(0, 3))
def test_the_output_has_the_grid_of_the_input_and_every_parameter_a_gradient(space, padding):
    torch.manual_seed(0)
    shape = ProblemShape(space=space, n_inputs=2, n_outputs=3)
    model = Uno(UnoConfig(width=4, n_modes=2, padding=padding), shape)
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_functions_are_contracted_and_expanded():
    model = Uno(
        UnoConfig(width=4, n_modes=3), ProblemShape(space=(33, 20), n_inputs=1, n_outputs=1)
    )
    seen = []
    blocks = [*model.contract, model.bottom, *model.expand]
    for block in blocks:
        block.register_forward_hook(lambda block, _, result: seen.append(tuple(result.shape[1:])))
    model(torch.randn(1, 33, 20, 1))
    assert seen == [(17, 10, 8), (9, 5, 16), (9, 5, 16), (17, 10, 8), (33, 20, 4)]


@pytest.mark.parametrize("n_dims", [1, 2])
def test_the_same_weights_predict_nearly_the_same_function_on_finer_grids(n_dims):
    torch.manual_seed(0)
    config = UnoConfig(width=4, n_modes=4)

    def predicted(model_grid, weights=None):
        """Return model and prediction for one smooth function, at the points of the coarsest."""
        shape = ProblemShape(space=(model_grid,) * n_dims, n_inputs=1, n_outputs=1)
        model = Uno(config, shape)
        if weights is not None:
            model.load_state_dict(weights)
        sine = torch.sin(torch.arange(model_grid) * 2 * pi / model_grid)
        field = sine if n_dims == 1 else sine[:, None] * sine.roll(model_grid // 8)
        every = (0, *[slice(None, None, model_grid // 32)] * n_dims)
        return model.state_dict(), model(field.reshape(1, *shape.space, 1))[every].detach()

    weights, coarse = predicted(32)
    grids = [coarse] + [predicted(size, weights)[1] for size in (64, 128)]
    differences = [(fine - coarse).square().mean().sqrt() for coarse, fine in pairwise(grids)]
    assert differences[0] < 0.1 * coarse.std()
    # Coordinates and pointwise maps put the last point at the end of the axis, the modes do not:
    # the difference is of first order in the spacing.
    assert differences[1] < 0.6 * differences[0]


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="n_modes must be at least 1"):
        UnoConfig(n_modes=(3, 0))
    with pytest.raises(ValueError, match="n_levels must be at least 1"):
        UnoConfig(n_levels=0)
    with pytest.raises(ValueError, match="padding"):
        UnoConfig(padding=-1)
    with pytest.raises(ValueError, match="one number for each axis"):
        Uno(UnoConfig(n_modes=(3, 3)), ProblemShape(space=(8,), n_inputs=1, n_outputs=1))
