import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.layers.multiwavelets import join_bands, split_bands
from lsm_core.models.mwt import Mwt, MwtConfig
from lsm_core.problems.shape import ProblemShape

GRIDS = st.one_of(
    st.tuples(st.integers(3, 40)),
    st.tuples(st.integers(3, 20), st.integers(3, 20)),
    st.tuples(st.integers(3, 9), st.integers(3, 9), st.integers(3, 9)),
)


def test_there_are_as_many_parameters_as_in_the_paper():
    model = Mwt(MwtConfig(), ProblemShape(space=(256, 256), n_inputs=1, n_outputs=1))
    assert sum(parameter.numel() for parameter in model.parameters()) == 3_105_905


@settings(max_examples=6, deadline=None)
@given(GRIDS)
def test_the_output_has_the_grid_of_the_input_and_every_parameter_a_gradient(space):
    torch.manual_seed(0)
    shape = ProblemShape(space=space, n_inputs=2, n_outputs=3)
    model = Mwt(MwtConfig(width=4, order=2, n_modes=2, n_blocks=2), shape)
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_each_axis_is_continued_to_its_own_power_of_two():
    model = Mwt(
        MwtConfig(width=1, order=1, n_modes=2), ProblemShape(space=(33, 5), n_inputs=1, n_outputs=1)
    )
    assert model.padded == (64, 8)
    assert model.blocks[0].n_levels == 3


def test_a_block_is_the_non_standard_form_of_an_operator():
    torch.manual_seed(0)
    shape = ProblemShape(space=(4,), n_inputs=1, n_outputs=1)
    block = Mwt(MwtConfig(width=2, order=2, n_modes=2), shape).blocks[0].double()
    features = torch.randn(2, 4, 4, dtype=torch.float64)
    smooth_1, details_1 = split_bands(features, 2)
    smooth_0, details_0 = split_bands(smooth_1, 2)

    def joined(smooth, level_smooth, level_details):
        details = block.details(level_details) + block.smooth_to_details(level_smooth)
        return join_bands(
            torch.stack([smooth + block.details_to_smooth(level_details), details]), 2
        )

    expected = joined(block.coarsest(smooth_0), smooth_0, details_0)
    expected = joined(expected, smooth_1, details_1)
    torch.testing.assert_close(block(features), expected, atol=1e-13, rtol=0)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="order must be at least 1"):
        MwtConfig(order=0)
    with pytest.raises(ValueError, match="n_modes must be at least 1"):
        MwtConfig(n_modes=0)
