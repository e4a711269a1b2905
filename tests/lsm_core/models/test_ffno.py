from math import pi

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.models.ffno import FactorizedSpectralConvolution, Ffno, FfnoConfig
from lsm_core.problems.shape import ProblemShape

GRIDS = st.one_of(
    st.tuples(st.integers(3, 40)),
    st.tuples(st.integers(3, 20), st.integers(3, 20)),
    st.tuples(st.integers(3, 9), st.integers(3, 9), st.integers(3, 9)),
)


def n_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("space", "expected"), [((256,), 119_905), ((256, 256), 218_241), ((32, 32, 32), 316_577)]
)
def test_there_are_as_many_parameters_as_in_the_paper(space, expected):
    model = Ffno(FfnoConfig(), ProblemShape(space=space, n_inputs=1, n_outputs=1))
    assert n_parameters(model) == expected


@settings(max_examples=12, deadline=None)
@given(GRIDS, st.integers(0, 3))
def test_the_output_has_the_grid_of_the_input_and_every_parameter_a_gradient(space, padding):
    torch.manual_seed(0)
    shape = ProblemShape(space=space, n_inputs=2, n_outputs=3)
    model = Ffno(FfnoConfig(width=4, n_modes=2, padding=padding), shape)
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_a_layer_is_not_linear():
    torch.manual_seed(0)
    model = Ffno(FfnoConfig(width=8, n_modes=4), ProblemShape(space=(16,), n_inputs=1, n_outputs=1))
    layer = model.layers[0]
    with torch.no_grad():
        for linear in (layer.feed_forward[0], layer.feed_forward[2]):
            linear.bias.zero_()
    first, second = torch.randn(2, 1, 16, 8)
    excess = layer(first + second) - layer(first) - layer(second)
    assert excess.abs().max() > 0.05


@pytest.mark.parametrize("n_dims", [1, 2])
def test_the_same_weights_predict_the_same_function_on_a_finer_grid(n_dims):
    torch.manual_seed(0)
    config = FfnoConfig(width=8, n_modes=4)
    model = Ffno(config, ProblemShape(space=(32,) * n_dims, n_inputs=1, n_outputs=1))
    finer = Ffno(config, ProblemShape(space=(64,) * n_dims, n_inputs=1, n_outputs=1))
    finer.load_state_dict(model.state_dict())
    # Coordinates from 0 to 1 inclusive do not halve with the spacing of a periodic grid.
    model.with_coordinates.coordinates.zero_()
    finer.with_coordinates.coordinates.zero_()
    sine = torch.sin(torch.arange(64) * 2 * pi / 64)
    field = (sine if n_dims == 1 else sine[:, None] + sine.roll(5)).reshape(1, *[64] * n_dims, 1)
    every_other = (slice(None), *[slice(None, None, 2)] * n_dims)
    predicted = finer(field)[every_other]
    difference = (predicted - model(field[every_other])).abs().max()
    # The kinks of ReLU have high modes, which each grid folds to other low ones.
    assert difference < 0.01 * predicted.std()


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="n_modes must be at least 1"):
        FfnoConfig(n_modes=(3, 0))
    with pytest.raises(ValueError, match="expansion must be at least 1"):
        FfnoConfig(expansion=0)
    with pytest.raises(ValueError, match="padding"):
        FfnoConfig(padding=-1)
    with pytest.raises(ValueError, match="one number for each axis"):
        Ffno(FfnoConfig(n_modes=(3, 3)), ProblemShape(space=(8,), n_inputs=1, n_outputs=1))


SPACES = [(11,), (8, 12), (5, 6, 7)]


def direct_sum(field, weights):
    """Return the layer as sums over points and modes, written out for each axis."""
    total = 0
    for axis, weight in enumerate(weights, start=1):
        size = field.shape[axis]
        points = torch.arange(size, dtype=torch.float64)
        lines = field.movedim(axis, -1).to(torch.complex128)  # (..., channel, point)
        for k in range(min(weight.shape[2], size // 2 + 1)):
            wave = torch.exp(2j * pi * k * points / size)
            coefficient = (lines * wave.conj()).sum(-1) / size**0.5
            mapped = coefficient @ torch.view_as_complex(weight)[:, :, k]
            twice = 1 if 2 * k % size == 0 else 2
            part = twice * (mapped.unsqueeze(-1) * wave).real / size**0.5
            total = total + part.movedim(-1, axis)
    return total


@pytest.mark.parametrize("space", SPACES)
def test_the_layer_equals_its_direct_sum(space):
    torch.manual_seed(0)
    layer = FactorizedSpectralConvolution(2, 3, tuple(range(3, 3 + len(space)))).double()
    field = torch.randn(2, *space, 2, dtype=torch.float64)
    torch.testing.assert_close(layer(field), direct_sum(field, layer.weights), atol=1e-13, rtol=0)


def test_a_wave_along_one_axis_is_mapped_by_the_weights_of_that_axis():
    layer = FactorizedSpectralConvolution(1, 1, (3, 3)).double()
    angle = 2 * pi * torch.arange(10, dtype=torch.float64) / 10
    field = torch.cos(2 * angle).reshape(1, 1, 10, 1).expand(1, 8, 10, 1)
    with torch.no_grad():
        layer.weights[0].zero_()
    real, imaginary = layer.weights[1][0, 0, 2].detach()
    expected = real * torch.cos(2 * angle) - imaginary * torch.sin(2 * angle)
    torch.testing.assert_close(layer(field)[0, 3, :, 0].detach(), expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize("space", [(5,), (4, 5), (3, 4, 3)])
def test_the_gradient_of_the_layer_is_right(space):
    torch.manual_seed(0)
    layer = FactorizedSpectralConvolution(2, 1, (2,) * len(space)).double()
    field = torch.randn(1, *space, 2, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]

    def apply(field, *weights):
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), field)

    assert torch.autograd.gradcheck(apply, (field, *layer.parameters()), fast_mode=True)
