import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.models.htnet import Decomposition, Htnet, HtnetConfig, Reduction
from lsm_core.problems.shape import ProblemShape

GRIDS = st.one_of(
    st.tuples(st.integers(6, 40)),
    st.tuples(st.integers(6, 20), st.integers(6, 20)),
    st.tuples(st.integers(6, 9), st.integers(6, 9), st.integers(6, 9)),
)


def test_the_size_is_within_one_percent_of_the_paper():
    model = Htnet(HtnetConfig(), ProblemShape(space=(256, 256), n_inputs=1, n_outputs=1))
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert n_parameters == 3_261_268
    assert n_parameters == pytest.approx(3.285e6, rel=0.01)


@settings(max_examples=8, deadline=None)
@given(GRIDS, st.integers(1, 2))
def test_the_output_has_the_grid_of_the_input_and_every_parameter_a_gradient(space, patch):
    torch.manual_seed(0)
    shape = ProblemShape(space=space, n_inputs=2, n_outputs=3)
    config = HtnetConfig(
        width=4, depths=(1, 2), patch=patch, n_modes=2, n_decoder_layers=2, head_width=8
    )
    model = Htnet(config, shape)
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


@pytest.mark.parametrize("space", [(6,), (4, 6), (2, 4, 6)])
def test_a_box_is_reduced_to_a_token_and_a_token_decomposed_into_its_box(space):
    box = (2,) * len(space)
    n_points = 2 ** len(space)
    reduction, decomposition = Reduction(box, 1, n_points), Decomposition(box, n_points, 1)
    with torch.no_grad():
        for layer in (reduction.linear, decomposition.linear):
            layer.weight.copy_(torch.eye(n_points))
            layer.bias.zero_()
    points = torch.randn(2, *space, 1)
    tokens = reduction(points)
    assert tokens.shape == (2, *(size // 2 for size in space), n_points)
    assert torch.equal(decomposition(tokens), points)


def test_distant_points_meet_at_the_coarsest_level():
    torch.manual_seed(0)

    def reached(depths):
        """Return how many tokens influence the first one."""
        config = HtnetConfig(width=4, depths=depths, window=2, patch=1)
        model = Htnet(config, ProblemShape(space=(16,), n_inputs=1, n_outputs=1))
        tokens = torch.randn(1, 16, 4, requires_grad=True)
        model.hierarchy(tokens)[0, 0].square().sum().backward()
        return int(tokens.grad.abs().sum(-1).gt(0).sum())

    assert [reached((1,) * n_levels) for n_levels in (1, 2, 3, 4)] == [2, 4, 8, 16]


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="depths must be at least 1"):
        HtnetConfig(depths=())
    with pytest.raises(ValueError, match="window must be at least 2"):
        HtnetConfig(window=1)
    with pytest.raises(ValueError, match="n_modes must be at least 1"):
        HtnetConfig(n_modes=(3, 0))
    with pytest.raises(ValueError, match="multiple of n_heads"):
        HtnetConfig(width=6, n_heads=4)
    with pytest.raises(ValueError, match="one number for each axis"):
        Htnet(HtnetConfig(n_modes=(3, 3)), ProblemShape(space=(8,), n_inputs=1, n_outputs=1))
