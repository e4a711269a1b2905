from itertools import product

import numpy as np
import pytest
import torch
from numpy.polynomial import legendre

from lsm_core.layers.multiwavelets import (
    join_bands,
    multiwavelet_filters,
    multiwavelet_matrix,
    split_bands,
)

ORDERS = [1, 2, 3, 4, 6]


@pytest.mark.parametrize(
    ("order", "n_dims"), [*product(ORDERS, (1, 2)), (1, 3), (2, 3), (3, 3), (4, 3)]
)
def test_the_filters_are_orthogonal(order, n_dims):
    matrix = multiwavelet_matrix(order, n_dims).reshape((2 * order) ** n_dims, -1)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(len(matrix)), atol=1e-12)


def test_the_first_order_is_the_haar_wavelet():
    np.testing.assert_allclose(
        multiwavelet_filters(1).squeeze(), np.array([[1, 1], [-1, 1]]) / np.sqrt(2), atol=1e-15
    )


def test_the_second_order_has_its_known_values():
    # phi_0 = 1 and phi_1 = sqrt(3) (2x - 1), each on half the interval.
    expected = np.array([[1, 0], [-np.sqrt(3) / 2, 1 / 2]]) / np.sqrt(2)
    np.testing.assert_allclose(multiwavelet_filters(2)[0, :, 0], expected, atol=1e-15)
    expected = np.array([[1, 0], [np.sqrt(3) / 2, 1 / 2]]) / np.sqrt(2)
    np.testing.assert_allclose(multiwavelet_filters(2)[0, :, 1], expected, atol=1e-15)


def coefficients(function, order, n_cells):
    """Return the coefficients of a function on each of the equal cells of [0, 1]."""
    nodes, weights = legendre.leggauss(12)
    scaled = legendre.legvander(nodes, order - 1) * np.sqrt(2 * np.arange(order) + 1)
    positions = (np.arange(n_cells)[:, np.newaxis] + (nodes + 1) / 2) / n_cells
    return function(positions) * weights / 2 @ scaled / np.sqrt(n_cells)


@pytest.mark.parametrize("order", ORDERS)
def test_the_smooth_part_of_a_function_is_that_function_on_half_as_many_cells(order):
    field = torch.from_numpy(coefficients(np.exp, order, 8)).unsqueeze(0)
    smooth, _ = split_bands(field, order)
    expected = coefficients(np.exp, order, 4)
    np.testing.assert_allclose(smooth[0].numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_details_vanish_up_to_the_degree_that_they_should(order):
    for degree in range(2 * order):
        field = torch.from_numpy(coefficients(lambda x, n=degree: x**n, order, 2)).unsqueeze(0)
        details = split_bands(field, order)[1, 0, 0].abs()
        # The i-th detail is orthogonal to all polynomials of degree below k + i, and to no more.
        n_seen = max(0, degree - order + 1)
        assert torch.all(details[n_seen:] < 1e-12)
        if n_seen:
            assert details[n_seen - 1] > 1e-8


@pytest.mark.parametrize(
    ("space", "order"), [((8,), 3), ((4, 6), 3), ((4, 2, 6), 2), ((2, 4, 4), 3)]
)
def test_joining_all_bands_undoes_splitting(space, order):
    torch.manual_seed(0)
    field = torch.randn(2, *space, 2 * order ** len(space), dtype=torch.float64)
    bands = split_bands(field, order)
    assert bands.shape == (2 ** len(space), 2, *(n // 2 for n in space), field.shape[-1])
    torch.testing.assert_close(join_bands(bands, order), field, atol=1e-12, rtol=0)
    torch.testing.assert_close(bands.norm(), field.norm(), atol=0, rtol=1e-12)


def test_bands_are_numbered_by_the_axes_along_which_they_are_details():
    order = 2
    along_x = torch.from_numpy(coefficients(np.exp, order, 4))  # 4 x 2
    constant = torch.zeros(4, 2, dtype=torch.float64)
    constant[:, 0] = 1
    # exp(x) times one: the coefficients along the last axis stand last.
    field = torch.einsum("xi,yj->xyij", along_x, constant).flatten(2).unsqueeze(0)
    sizes = split_bands(field, order).flatten(1).norm(dim=1)
    assert sizes[1] < 1e-13
    assert sizes[2] > 1e-3
    assert sizes[3] < 1e-13


@pytest.mark.parametrize(("space", "order"), [((4,), 3), ((4, 2), 2), ((2, 2, 4), 2)])
def test_bands_that_are_left_out_are_zero(space, order):
    torch.manual_seed(0)
    kept = (0, 2 ** len(space) - 1)
    field = torch.randn(1, *space, order ** len(space), dtype=torch.float64)
    bands = split_bands(field, order)
    torch.testing.assert_close(split_bands(field, order, kept), bands[list(kept)])
    others = [band for band in range(len(bands)) if band not in kept]
    bands[others] = 0
    joined = join_bands(bands[list(kept)], order, kept)
    torch.testing.assert_close(joined, join_bands(bands, order), atol=1e-13, rtol=0)


@pytest.mark.parametrize(("space", "order"), [((4,), 2), ((2, 4), 2), ((2, 2, 2), 2)])
def test_the_gradients_of_splitting_and_joining_are_right(space, order):
    field = torch.randn(1, *space, order ** len(space), dtype=torch.float64, requires_grad=True)
    bands = split_bands(field, order).detach().requires_grad_()
    check = torch.autograd.gradcheck
    assert check(lambda field: split_bands(field, order), field, fast_mode=True)
    assert check(lambda bands: join_bands(bands, order), bands, fast_mode=True)
