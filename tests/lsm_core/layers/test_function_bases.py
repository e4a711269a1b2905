from math import pi

import numpy as np
import pytest
import torch

from lsm_core.layers.function_bases import (
    fitting_matrix,
    from_coefficients,
    n_stable,
    to_coefficients,
)

SPACES = [(40,), (17, 30), (9, 16, 20)]


@pytest.mark.parametrize("basis", ["chebyshev", "fourier"])
@pytest.mark.parametrize("space", SPACES)
def test_fitting_undoes_summing(basis, space):
    torch.manual_seed(0)
    counts = tuple(min(7, n_stable(basis, size)) for size in space)
    coefficients = torch.randn(2, *counts, 3, dtype=torch.float64)
    field = from_coefficients(coefficients, basis, space)
    torch.testing.assert_close(
        to_coefficients(field, basis, counts), coefficients, atol=1e-12, rtol=0
    )


def test_the_coefficients_of_polynomials_are_exact():
    # x^3 = (3 T_1 + T_3) / 4, and y^2 = (T_0 + T_2) / 2.
    x = torch.linspace(-1, 1, 25, dtype=torch.float64)[:, None]
    y = torch.linspace(-1, 1, 33, dtype=torch.float64)[None, :]
    field = (x**3 * y**2)[None, ..., None]
    expected = torch.zeros(1, 6, 5, 1, dtype=torch.float64)
    for i, first in ((1, 3 / 4), (3, 1 / 4)):
        for j, second in ((0, 1 / 2), (2, 1 / 2)):
            expected[0, i, j, 0] = first * second
    result = to_coefficients(field, "chebyshev", (6, 5))
    torch.testing.assert_close(result, expected, atol=1e-13, rtol=0)
    finer = from_coefficients(result, "chebyshev", (5, 3))
    torch.testing.assert_close(finer, field[:, ::6, ::16], atol=1e-13, rtol=0)


def test_the_coefficients_of_waves_are_exact():
    angle = 2 * pi * torch.arange(12, dtype=torch.float64) / 12
    field = (3 + 2 * torch.cos(angle) - torch.sin(3 * angle)).reshape(1, 12, 1)
    expected = torch.tensor([3, 2 / 2**0.5, 0, 0, 0, 0, -1 / 2**0.5], dtype=torch.float64)
    result = to_coefficients(field, "fourier", (7,)).flatten()
    torch.testing.assert_close(result, expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize("n_points", [5, 8, 16, 64, 85, 256])
def test_noise_on_the_values_is_not_amplified(n_points):
    n_functions = n_stable("chebyshev", n_points)
    for basis in ("chebyshev", "fourier"):
        assert np.abs(fitting_matrix(basis, n_points, n_functions)).sum(1).max() < 1.5


def test_a_smooth_function_converges_with_the_number_of_coefficients():
    x = torch.linspace(-1, 1, 200, dtype=torch.float64)
    field = torch.exp(torch.sin(3 * x)).reshape(1, 200, 1)

    def error(count):
        coefficients = to_coefficients(field, "chebyshev", (count,))
        return (from_coefficients(coefficients, "chebyshev", (200,)) - field).abs().max()

    assert error(8) < 0.2
    assert error(16) < 2e-3
    assert error(28) < 1e-6


def test_coefficients_beyond_a_coarse_grid_are_zero():
    result = to_coefficients(torch.randn(1, 9, 1), "chebyshev", (12,))
    assert torch.all(result[:, 6:] == 0)
    assert torch.all(result[:, :6] != 0)
    assert torch.all(to_coefficients(torch.randn(1, 4, 1), "fourier", (9,))[:, 3:] == 0)


@pytest.mark.parametrize("basis", ["chebyshev", "fourier"])
def test_the_gradients_of_the_transforms_are_right(basis):
    field = torch.randn(1, 5, 4, 2, dtype=torch.float64, requires_grad=True)
    check = torch.autograd.gradcheck
    assert check(lambda field: to_coefficients(field, basis, (3, 3)), field, fast_mode=True)
    assert check(lambda field: from_coefficients(field, basis, (6, 7)), field, fast_mode=True)
