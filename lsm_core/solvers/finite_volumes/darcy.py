"""Flow through a porous medium: -div(a grad u) = f in the unit box, u = 0 on its boundary."""

from dataclasses import dataclass
from math import prod, sqrt
from typing import no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_volumes.fast_poisson import FastPoisson


@dataclass(frozen=True, kw_only=True)
class DarcySolution:
    """The pressure in the cells and the number of iterations it took."""

    pressure: Float[np.ndarray, "*cell"]
    n_iterations: int


def solve_darcy(
    coefficient: Float[np.ndarray, "*cell"],
    source: Float[np.ndarray, "*cell"],
    *,
    tolerance: float = 1e-9,
    max_iterations: int = 200,
) -> DarcySolution:
    """Return the pressure at cell centres, of second order where the coefficient is smooth.

    Conjugate gradients, preconditioned by the Poisson solve M⁻¹ of the same grid: because
    min(a) M <= A <= max(a) M, the number of iterations depends on max(a) / min(a) alone and not on
    the number of cells. They end when a bound of the relative error in the energy norm falls below
    `tolerance`: |e|²_A <= r·M⁻¹r / min(a), and |u|²_A = f·u, also for each iterate u.
    """
    smallest = float(coefficient.min())
    if not smallest > 0:
        raise ValueError(f"the coefficient must be positive, its minimum is {smallest:g}")
    # Single precision is enough here: it shapes the search directions, not the residual.
    poisson = FastPoisson.for_cells(coefficient.shape, np.float32)
    faces = face_coefficients(coefficient)
    right_side = source.astype(np.float64, order="C")

    pressure = np.zeros(coefficient.shape)
    residual = right_side.copy()
    correction = poisson.solve(residual)
    direction = correction.astype(np.float64)
    product = _dot(residual, correction)
    if product == 0:  # Without a source there is no flow, and no relative error.
        return DarcySolution(pressure=pressure, n_iterations=0)
    bound = float("inf")
    for n_iterations in range(1, max_iterations + 1):
        image = apply_darcy(faces, direction)
        _descend(pressure, residual, direction, image, product / _dot(direction, image))
        correction = poisson.solve(residual)
        previous, product = product, _dot(residual, correction)
        bound = sqrt(product / (smallest * _dot(right_side, pressure)))
        if bound < tolerance:
            return DarcySolution(pressure=pressure, n_iterations=n_iterations)
        _turn(direction, correction, product / previous)
    raise SolveFailed("the Darcy solve", max_iterations, bound, tolerance)


def face_coefficients(coefficient: Float[np.ndarray, "*cell"]) -> list[Float[np.ndarray, "..."]]:
    """Return for each axis the coefficient on the faces across it, divided by h².

    A face between two cells has the arithmetic mean of the two. A face of the boundary has twice
    the coefficient of its cell, because the centre is only h/2 away from it.
    """
    faces = []
    for axis, n_cells in enumerate(coefficient.shape):
        cells = np.moveaxis(coefficient, axis, 0).astype(np.float64)
        means = np.concatenate([2 * cells[:1], (cells[1:] + cells[:-1]) / 2, 2 * cells[-1:]])
        faces.append(np.ascontiguousarray(np.moveaxis(means, 0, axis)) * n_cells**2)
    return faces


def apply_darcy(
    faces: list[Float[np.ndarray, "..."]], field: Float[np.ndarray, "*cell"]
) -> Float[np.ndarray, "*cell"]:
    """Return -div(a grad u) in each cell, as the sum of what leaves through its faces."""
    outflow = np.zeros(field.shape)
    for axis, n_cells in enumerate(field.shape):
        # One kernel for any dimension: the axes before and after this one are joined.
        n_before, n_after = prod(field.shape[:axis]), prod(field.shape[axis + 1 :])
        _add_outflow(
            outflow.reshape(n_before, n_cells, n_after),
            field.reshape(n_before, n_cells, n_after),
            faces[axis].reshape(n_before, n_cells + 1, n_after),
        )
    return outflow


# Kernels carry no types: the test run wraps annotated functions, which numba cannot compile.
# Sums are plain loops, because BLAS gives other bits on another number of threads.
@njit(cache=True)
@no_type_check
def _add_outflow(outflow, field, faces):
    n_before, n_cells, n_after = field.shape
    for before in range(n_before):
        for cell in range(n_cells):
            for after in range(n_after):
                value = field[before, cell, after]
                left = field[before, cell - 1, after] if cell > 0 else 0.0
                right = field[before, cell + 1, after] if cell < n_cells - 1 else 0.0
                through_left = faces[before, cell, after] * (value - left)
                through_right = faces[before, cell + 1, after] * (value - right)
                outflow[before, cell, after] += through_left + through_right


@njit(cache=True)
@no_type_check
def _dot(first, second):
    total = 0.0
    for i in range(first.size):
        total += first.flat[i] * second.flat[i]
    return total


@njit(cache=True)
@no_type_check
def _descend(pressure, residual, direction, image, length):
    for i in range(pressure.size):
        pressure.flat[i] += length * direction.flat[i]
        residual.flat[i] -= length * image.flat[i]


@njit(cache=True)
@no_type_check
def _turn(direction, correction, share):
    for i in range(direction.size):
        direction.flat[i] = correction.flat[i] + share * direction.flat[i]
