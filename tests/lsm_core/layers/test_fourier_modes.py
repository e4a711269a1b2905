from itertools import product
from math import pi, prod

import pytest
import torch

from lsm_core.layers.fourier import SpectralConvolution
from lsm_core.layers.fourier_modes import (
    SpectralResampling,
    along_axis,
    from_modes,
    to_modes,
    usable_modes,
)

SPACES = [(9,), (16,), (8, 12), (7, 9), (6, 5, 8)]


def band_limited(space, n_waves, seed=0):
    """Return a random real field, 1 x space x 2, of all products of waves up to `n_waves`."""
    generator = torch.Generator().manual_seed(seed)
    axes = []
    for size in space:
        angles = 2 * pi * torch.arange(size, dtype=torch.float64) / size
        waves = [torch.cos(k * angles + k) for k in range(n_waves + 1)]
        waves += [torch.sin(k * angles) for k in range(1, n_waves + 1)]
        axes.append(torch.stack(waves))
    n_waves_in_all = axes[0].shape[0]
    field = torch.randn(*[n_waves_in_all] * len(space), 2, generator=generator, dtype=torch.float64)
    for waves in axes:
        field = torch.tensordot(field, waves, dims=([0], [0]))  # moves each axis to the end
    return field.movedim(0, -1).unsqueeze(0)


@pytest.mark.parametrize("space", SPACES)
def test_modes_are_those_of_the_fast_transform(space):
    torch.manual_seed(0)
    field = torch.randn(2, *space, 3, dtype=torch.float64)
    n_modes = usable_modes((3,) * len(space), space)
    axes = tuple(range(1, len(space) + 1))
    spectrum = torch.fft.rfftn(field, dim=axes, norm="forward")
    for axis, count in enumerate(n_modes[:-1], start=1):
        low = spectrum.narrow(axis, 0, count)
        negative = spectrum.narrow(axis, space[axis - 1] - count, count)
        spectrum = torch.cat([low, negative], dim=axis)
    spectrum = spectrum.narrow(len(space), 0, n_modes[-1])
    torch.testing.assert_close(to_modes(field, n_modes), spectrum, atol=1e-14, rtol=1e-12)


@pytest.mark.parametrize("space", SPACES)
def test_a_field_follows_from_its_modes_as_by_the_fast_transform(space):
    torch.manual_seed(0)
    n_modes = usable_modes((3,) * len(space), space)
    counts = (*(2 * n for n in n_modes[:-1]), n_modes[-1])
    modes = torch.randn(2, *counts, 3, dtype=torch.complex128)
    spectrum = modes.new_zeros(2, *space[:-1], space[-1] // 2 + 1, 3)
    indices = [
        torch.cat([torch.arange(n), torch.arange(size - n, size)])
        for n, size in zip(n_modes[:-1], space[:-1], strict=True)
    ]
    places = torch.meshgrid(*indices, torch.arange(n_modes[-1]), indexing="ij")
    spectrum[(slice(None), *places)] = modes
    expected = torch.fft.irfftn(
        spectrum, s=space, dim=tuple(range(1, len(space) + 1)), norm="forward"
    )
    torch.testing.assert_close(from_modes(modes, space), expected, atol=1e-13, rtol=1e-12)


@pytest.mark.parametrize("space", [(16,), (9,), (12, 16), (8, 10, 9)])
def test_resampling_is_exact_on_band_limited_fields(space):
    field = band_limited(space, n_waves=3)
    for factor in (1, 2, 3):
        finer = tuple(factor * size - (factor - 1) for size in space)
        modes = to_modes(field, (4,) * len(space))
        expected = band_limited(finer, n_waves=3)
        torch.testing.assert_close(from_modes(modes, finer), expected, atol=1e-11, rtol=0)
        torch.testing.assert_close(to_modes(expected, (4,) * len(space)), modes, atol=1e-12, rtol=0)


@pytest.mark.parametrize("space", [(16,), (8, 12), (8, 10, 8)])
def test_the_same_layer_maps_to_the_same_function_on_every_grid(space):
    torch.manual_seed(0)
    layer = SpectralResampling(2, 3, (4,) * len(space)).double()
    finer = tuple(2 * size for size in space)
    coarse, fine = band_limited(space, 3), band_limited(finer, 3)
    every_other = (slice(None), *[slice(None, None, 2)] * len(space))
    from_coarse = layer(coarse, finer)
    torch.testing.assert_close(from_coarse, layer(fine), atol=1e-11, rtol=0)
    torch.testing.assert_close(from_coarse[every_other], layer(fine, space), atol=1e-11, rtol=0)


def test_each_mode_is_multiplied_by_its_own_weight_on_grids_that_have_fewer():
    layer = SpectralResampling(1, 1, (4, 4)).double()

    def response(space):
        x, y = torch.meshgrid(
            *(torch.arange(n).double() * 2 * pi / n for n in space), indexing="ij"
        )
        angle = -x + 2 * y
        # The mode (-1, 2): the last of the negative ones along the first axis.
        real, imaginary = layer.weight[-1, 2, 0, 0].detach()
        expected = real * torch.cos(angle) - imaginary * torch.sin(angle)
        return layer(torch.cos(angle)[None, ..., None])[0, ..., 0].detach() - expected

    assert response((16, 16)).abs().max() < 1e-13
    assert response((5, 6)).abs().max() < 1e-13


@pytest.mark.parametrize("space", [(6,), (4, 5), (3, 4, 4)])
def test_the_gradient_of_a_spectral_resampling_is_right(space):
    torch.manual_seed(0)
    layer = SpectralResampling(2, 1, (2,) * len(space)).double()
    field = torch.randn(1, *space, 2, dtype=torch.float64, requires_grad=True)
    finer = tuple(size + 2 for size in space)
    assert torch.autograd.gradcheck(
        lambda field, weight: torch.func.functional_call(layer, {"weight": weight}, (field, finer)),
        (field, layer.weight),
        fast_mode=True,
    )
    assert layer(field, finer).numel() == prod(finer)


@pytest.mark.parametrize("space", [(16,), (8, 12), (8, 6, 10)])
def test_on_one_grid_the_layer_is_a_spectral_convolution(space):
    torch.manual_seed(0)
    convolution = SpectralConvolution(2, 3, (3,) * len(space)).double()
    layer = SpectralResampling(2, 3, (3,) * len(space)).double()
    with torch.no_grad():
        for signs, corner in zip(
            product((slice(0, 3), slice(3, 6)), repeat=len(space) - 1),
            convolution.weight,
            strict=True,
        ):
            layer.weight[signs] = corner.movedim((0, 1), (-3, -2))
    field = torch.randn(2, *space, 2, dtype=torch.float64)
    torch.testing.assert_close(layer(field), convolution(field), atol=1e-13, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(("axis", "indices"), [(0, "nbcd"), (1, "ancd"), (2, "abnd"), (3, "abcn")])
def test_the_values_along_an_axis_become_products(axis, indices, dtype):
    torch.manual_seed(0)
    field = torch.randn(2, 3, 4, 5, dtype=dtype)
    matrix = torch.randn(6, field.shape[axis], dtype=dtype)
    summed = "abcd"[axis]
    expected = torch.einsum(f"n{summed},abcd->{indices}", matrix, field)
    torch.testing.assert_close(along_axis(matrix, field, axis), expected)


def test_a_field_that_is_not_contiguous_gives_the_same():
    field = torch.randn(4, 3, 2).transpose(0, 2)
    matrix = torch.randn(5, 3)
    torch.testing.assert_close(
        along_axis(matrix, field, 1), along_axis(matrix, field.contiguous(), 1)
    )


def test_the_gradient_of_the_product_is_right():
    matrix = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    field = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *values: along_axis(*values, 1), (matrix, field))
