import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.models.galerkin import Galerkin, GalerkinConfig
from lsm_core.problems.shape import ProblemShape

GRIDS = st.one_of(
    st.tuples(st.integers(4, 40)),
    st.tuples(st.integers(4, 20), st.integers(4, 20)),
    st.tuples(st.integers(4, 9), st.integers(4, 9), st.integers(4, 9)),
)
SMALL = GalerkinConfig(width=8, n_layers=2, n_heads=2, decoder_width=4, n_modes=2, head_width=8)


def n_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_size_is_within_three_percent_of_the_paper():
    model = Galerkin(GalerkinConfig(), ProblemShape(space=(256, 256), n_inputs=1, n_outputs=1))
    assert n_parameters(model) == 6_145_121
    assert n_parameters(model) == pytest.approx(6.319e6, rel=0.03)


@settings(max_examples=10, deadline=None)
@given(GRIDS, st.integers(1, 3))
def test_the_output_has_the_grid_of_the_input_and_every_parameter_a_gradient(space, coarsening):
    torch.manual_seed(0)
    shape = ProblemShape(space=space, n_inputs=2, n_outputs=3)
    config = GalerkinConfig(
        width=8,
        n_layers=2,
        n_heads=2,
        coarsening=coarsening,
        decoder_width=4,
        n_modes=2,
        head_width=8,
    )
    model = Galerkin(config, shape)
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_attention_is_on_the_coarser_grid():
    model = Galerkin(SMALL, ProblemShape(space=(9, 14), n_inputs=1, n_outputs=1))
    assert model.coarse == (5, 7)
    assert model.positions.shape == (35, 2)
    assert model.positions[-1].tolist() == [1, 1]


def test_every_point_sees_every_other():
    torch.manual_seed(0)
    model = Galerkin(SMALL, ProblemShape(space=(32,), n_inputs=1, n_outputs=1))
    # Without Fourier layers only the attention reaches beyond a few points.
    with torch.no_grad():
        for spectral in model.decoder.spectral:
            spectral.weight.zero_()
    field = torch.randn(1, 32, 1, requires_grad=True)
    model(field)[0, 0, 0].backward()
    assert field.grad[0, -1].abs() > 1e-9


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="n_modes must be at least 1"):
        GalerkinConfig(n_modes=(3, 0))
    with pytest.raises(ValueError, match="coarsening must be at least 1"):
        GalerkinConfig(coarsening=0)
    with pytest.raises(ValueError, match="multiple of n_heads"):
        GalerkinConfig(width=30)
    with pytest.raises(ValueError, match="one number for each axis"):
        Galerkin(GalerkinConfig(n_modes=(3, 3)), ProblemShape(space=(8,), n_inputs=1, n_outputs=1))
