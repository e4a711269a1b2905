from math import pi

import pytest
import torch

from lsm_core.layers.factorized_fourier import FactorizedSpectralConvolution

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
