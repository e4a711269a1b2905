"""Legendre multiwavelets: a field as a coarser one and the details between the two.

Each cell of a grid carries the k coefficients of a polynomial of degree below k, in the basis of
normalised Legendre polynomials. The polynomials on two neighbouring cells are, on both together,
one polynomial and k coefficients of details:

    s_l = H0 s_2l + H1 s_2l+1,    d_l = G0 s_2l + G1 s_2l+1

The matrix of the four filters is orthogonal, so its transpose leads back. In several dimensions
the filters act along each axis, which gives 2^d bands: smooth along all axes, ..., detail along
all. Reference: B. Alpert, A class of bases in L2 for the sparse representation of integral
operators, 1993.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Float64
from numpy.polynomial import legendre
from torch import Tensor

from lsm_core.layers.constants import kept_on_device
from lsm_core.layers.patches import join_patches, split_patches
from lsm_core.layers.precision import in_float32
from lsm_core.layers.shapes import Field


@in_float32
def split_bands(
    field: Field, order: int, kept: tuple[int, ...] | None = None
) -> Float[Tensor, "band batch *half channel"]:
    """Return the bands of a field with half the cells along each axis, all or those numbered.

    The channels are `(any, k, ..., k)`, the coefficients along the last axis of space last. The
    digits of a band's number say, first axis first, whether it is a detail (1) along that axis.
    """
    batch, *space, n_channels = field.shape
    matrix = _bands(order, len(space), kept or (), like=field)  # (band coefficient, cell's)
    n_cells, n_coefficients = 2 ** len(space), order ** len(space)
    cells = split_patches(field, (2,) * len(space))
    values = cells.view(len(cells), n_cells, -1, n_coefficients).transpose(1, 2).flatten(2)
    bands = (values @ matrix.T).unflatten(-1, (-1, n_coefficients))
    half = [size // 2 for size in space]
    return bands.movedim(2, 0).reshape(-1, batch, *half, n_channels)


@in_float32
def join_bands(
    bands: Float[Tensor, "band batch *half channel"],
    order: int,
    kept: tuple[int, ...] | None = None,
) -> Field:
    """Return the field that has these bands: undo `split_bands`; bands not kept are zero."""
    n_bands, _, *half, n_channels = bands.shape
    matrix = _bands(order, len(half), kept or (), like=bands)
    n_cells, n_coefficients = 2 ** len(half), order ** len(half)
    points = bands.reshape(n_bands, -1, n_channels // n_coefficients, n_coefficients)
    values = points.movedim(0, 2).flatten(2) @ matrix
    cells = values.unflatten(-1, (n_cells, n_coefficients)).transpose(1, 2).flatten(2)
    return join_patches(cells, (2,) * len(half), tuple(2 * size for size in half))


@lru_cache
def multiwavelet_filters(order: int) -> Float64[np.ndarray, "2 order 2 order"]:
    """Return the filters along one axis: H0, H1 in the first row and G0, G1 in the second.

    The rows are the normalised Legendre polynomials of degree below 2k as seen by polynomials of
    degree below k on the two halves of the interval, made orthonormal one after the other. The
    first k are H. Each of the others is orthogonal to all polynomials of lower degree than its
    own, the most vanishing moments that a basis of details can have.
    """
    nodes, weights = legendre.leggauss(2 * order)
    fine = _normalized_legendre(nodes, order) * weights / 2  # on [0, 1] the weights sum to one
    halves = [
        _normalized_legendre((nodes + shift) / 2, 2 * order) @ fine.T / np.sqrt(2)
        for shift in (-1, 1)
    ]
    rows = np.concatenate(halves, axis=1)  # (degree, half and coefficient)
    orthonormal, triangle = np.linalg.qr(rows.T)
    filters = orthonormal.T * np.sign(np.diag(triangle))[:, np.newaxis]
    return filters.reshape(2, order, 2, order)


@lru_cache
def multiwavelet_matrix(
    order: int, n_dims: int
) -> Float64[np.ndarray, "band coefficient cell coefficient"]:
    """Return the filters of all axes as one array, which is an orthogonal matrix."""
    along_one_axis = multiwavelet_filters(order)
    matrix = along_one_axis
    for _ in range(n_dims - 1):
        outer = np.einsum("bicj,BICJ->bBiIcCjJ", matrix, along_one_axis)
        matrix = outer.reshape(np.multiply(matrix.shape, along_one_axis.shape))
    return matrix


def _normalized_legendre(
    positions: Float64[np.ndarray, " point"], count: int
) -> Float64[np.ndarray, "degree point"]:
    """Return the first Legendre polynomials on [-1, 1], with mean square one."""
    degrees = np.arange(count)
    return legendre.legvander(positions, count - 1).T * np.sqrt(2 * degrees + 1)[:, np.newaxis]


@kept_on_device
def _bands(
    order: int, n_dims: int, kept: tuple[int, ...]
) -> Float64[np.ndarray, "band_coefficient cell_coefficient"]:
    """Return the rows of the bands with these numbers, or of all if there are none."""
    matrix = multiwavelet_matrix(order, n_dims)
    if kept:
        matrix = matrix[list(kept)]
    n_bands, n_coefficients = matrix.shape[:2]
    return matrix.reshape(n_bands * n_coefficients, -1)
