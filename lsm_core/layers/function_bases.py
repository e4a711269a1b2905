"""Coefficients of a field on a uniform grid in Chebyshev polynomials or in waves.

Along each axis a field is a sum of the first few functions of a basis. The coefficients are those
of the sum that is nearest to the values of the field. They belong to the function, not to the
grid: a finer grid gives nearly the same.
"""

from math import isqrt
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64
from numpy.polynomial import chebyshev
from torch import Tensor

from lsm_core.layers.constants import kept_on_device
from lsm_core.layers.fourier_modes import along_axis
from lsm_core.layers.precision import in_float32
from lsm_core.layers.shapes import Field

Basis = Literal["chebyshev", "fourier"]


@in_float32
def to_coefficients(
    field: Field, basis: Basis, n_coefficients: tuple[int, ...]
) -> Float[Tensor, "batch *coefficient channel"]:
    """Return the coefficients of a field; those that a grid is too coarse for are zero."""
    for axis, count in enumerate(n_coefficients, start=1):
        matrix = _fitting(basis, field.shape[axis], count, like=field)
        field = along_axis(matrix, field, axis)
    return field


@in_float32
def from_coefficients(
    coefficients: Float[Tensor, "batch *coefficient channel"],
    basis: Basis,
    space: tuple[int, ...],
) -> Field:
    """Return the sum of the basis functions at the points of a grid."""
    field = coefficients
    for axis, size in enumerate(space, start=1):
        matrix = _functions(basis, size, field.shape[axis], like=field)
        field = along_axis(matrix, field, axis)
    return field


def basis_functions(
    basis: Basis, n_points: int, n_functions: int
) -> Float64[np.ndarray, "point function"]:
    """Return the first functions of a basis at the points of a grid.

    The Chebyshev polynomials are those of an interval with points at both ends. The waves are
    1, cos, sin, cos of twice the angle, ... with mean square one, on a periodic axis whose last
    point is the neighbour of the first.
    """
    if basis == "chebyshev":
        return chebyshev.chebvander(np.linspace(-1, 1, n_points), n_functions - 1)
    angles = 2 * np.pi * np.arange(n_points) / n_points
    numbers = (np.arange(n_functions) + 1) // 2
    phases = np.outer(angles, numbers)
    sines = np.arange(n_functions) % 2 == 0
    waves = np.sqrt(2) * np.where(sines, np.sin(phases), np.cos(phases))
    waves[:, 0] = 1
    return waves


def fitting_matrix(
    basis: Basis, n_points: int, n_functions: int
) -> Float64[np.ndarray, "function point"]:
    """Return the matrix from values to the coefficients of the nearest sum, by least squares."""
    count = min(n_functions, n_stable(basis, n_points))
    matrix = np.zeros((n_functions, n_points))
    matrix[:count] = np.linalg.pinv(basis_functions(basis, n_points, count))
    return matrix


_functions = kept_on_device(basis_functions)
_fitting = kept_on_device(fitting_matrix)


def n_stable(basis: Basis, n_points: int) -> int:
    """Return how many coefficients the values on a uniform grid determine well.

    Polynomials of a degree beyond twice the square root of the number of points swing between
    the points near the ends (Runge's phenomenon). An even number of points cannot tell the sine
    of the highest wave from zero.
    """
    if basis == "chebyshev":
        return min(n_points, isqrt(4 * n_points))
    return n_points - (n_points + 1) % 2
