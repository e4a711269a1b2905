import pytest
import torch

from lsm_core.layers.fourier import SpectralConvolution

SPACES = [(16,), (8, 12), (8, 6, 10)]


@pytest.mark.parametrize("space", SPACES)
def test_a_spectral_convolution_commutes_with_shifts(space):
    torch.manual_seed(0)
    layer = SpectralConvolution(2, 3, (3,) * len(space))
    field = torch.randn(2, *space, 2)
    torch.testing.assert_close(
        layer(field.roll(2, dims=1)), layer(field).roll(2, dims=1), atol=1e-6, rtol=1e-4
    )


def test_each_kept_mode_is_multiplied_by_its_own_weight_and_others_vanish():
    layer = SpectralConvolution(1, 1, (3, 3))
    x, y = torch.meshgrid(*[torch.arange(16) * 2 * torch.pi / 16] * 2, indexing="ij")

    def response(kx, ky):
        return layer(torch.cos(kx * x + ky * y)[None, ..., None])[0, ..., 0]

    # cos(2x - y) holds the mode (-2, 1) as stored: second corner, -3 .. -1 along the first axis.
    real, imaginary = layer.weight[1, 0, 0, 1, 1].detach()
    expected = real * torch.cos(-2 * x + y) - imaginary * torch.sin(-2 * x + y)
    torch.testing.assert_close(response(-2, 1).detach(), expected, atol=1e-5, rtol=0)
    assert response(4, 1).abs().max() < 1e-5
    assert response(1, 4).abs().max() < 1e-5


def test_a_grid_with_fewer_modes_uses_fewer():
    layer = SpectralConvolution(2, 2, (12, 12))
    assert layer(torch.randn(1, 6, 5, 2)).shape == (1, 6, 5, 2)
