import pytest
import torch
from torch.nn import functional

from lsm_core.layers.by_dimension import pool
from lsm_core.layers.convolution import convolve
from lsm_core.layers.upsampling import convolve_upsampled, upsample


def test_released_upsampling_keeps_the_corners():
    field = torch.randn(2, 4, 6, 3)
    expected = functional.interpolate(
        field.movedim(-1, 1), scale_factor=2, mode="bilinear", align_corners=True
    )
    torch.testing.assert_close(upsample(field, "zero"), expected.movedim(1, -1))
    torch.testing.assert_close(upsample(field, "zero")[:, -1, -1], field[:, -1, -1])


def test_circular_upsampling_commutes_with_shifts():
    field = torch.randn(1, 6, 4, 2)
    torch.testing.assert_close(
        upsample(field.roll(1, dims=1), "circular"), upsample(field, "circular").roll(2, dims=1)
    )


def test_circular_upsampling_of_a_pooled_sine_is_a_sine_of_the_same_phase():
    position = torch.arange(64) * 2 * torch.pi / 64
    sine = torch.sin(position).reshape(1, 64, 1)
    restored = upsample(pool(sine, "average"), "circular")
    # A phase error of half a fine point would be an error of 0.05.
    torch.testing.assert_close(restored, sine, atol=5e-3, rtol=0)


# The first of each dimension has short axes for its channels and mixes them at low resolution.
CASES = [((4,), 40, 30), ((40,), 2, 3), ((3, 5), 40, 30), ((6, 5), 2, 2), ((2, 3, 2), 20, 20)]


@pytest.mark.parametrize("boundary", ["zero", "circular"])
@pytest.mark.parametrize(("coarse", "n_inputs", "n_outputs"), CASES)
def test_the_convolution_of_an_upsampled_field_is_exact(coarse, n_inputs, n_outputs, boundary):
    torch.manual_seed(0)
    field = torch.randn(2, *coarse, n_inputs, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(
        n_outputs, n_inputs, *[3] * len(coarse), dtype=torch.float64, requires_grad=True
    )

    def plainly(values, kernel):
        return convolve(upsample(values, boundary), kernel, None, boundary)

    def merged(values, kernel):
        return convolve_upsampled(values, kernel, boundary)

    results = []
    for convolution in (merged, plainly):
        result = convolution(field, weight)
        results.append([result, *torch.autograd.grad((result**3).sum(), (field, weight))])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-11 * plain.abs().max().item())
