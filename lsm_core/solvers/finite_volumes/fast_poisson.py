"""The Poisson equation on a box of equal cells, solved directly."""

from dataclasses import dataclass
from math import prod
from typing import no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit
from scipy import fft


@dataclass(frozen=True, kw_only=True)
class FastPoisson:
    """The inverse of the cell-centred Laplacian on the unit box, zero on its faces.

    Along an axis of n cells with h = 1/n the operator is (2 u_i - u_(i-1) - u_(i+1)) / h², where
    the value beyond a face of the box is minus the value inside. Sine transforms of type 2 make it
    diagonal along every axis but the first; along the first, a tridiagonal system is left for each
    mode. Elimination costs far less than the transform that it saves, above all when the number
    of cells is prime, as 421 is.
    """

    off_diagonal: float
    inverse_pivots: Float[np.ndarray, "*cell"]
    """The reciprocal pivots of the elimination along the first axis."""

    @classmethod
    def for_cells(
        cls, shape: tuple[int, ...], dtype: type[np.float32] | type[np.float64]
    ) -> "FastPoisson":
        """Return the solver for a box of `shape` cells that works in one precision."""
        eigenvalues = np.zeros(shape[1:])
        for axis, n_cells in enumerate(shape[1:]):
            angles = np.pi * np.arange(1, n_cells + 1) / (2 * n_cells)
            others = [other for other in range(len(shape) - 1) if other != axis]
            # 2 - 2 cos(2x) written as 4 sin²(x), which keeps the digits of small x.
            eigenvalues += np.expand_dims((2 * n_cells * np.sin(angles)) ** 2, others)
        off_diagonal = float(shape[0]) ** 2
        pivots = np.empty(shape)
        pivots[:] = 2 * off_diagonal + eigenvalues
        pivots[0] += off_diagonal
        pivots[-1] += off_diagonal
        for i in range(1, shape[0]):
            pivots[i] -= off_diagonal**2 / pivots[i - 1]
        return cls(off_diagonal=off_diagonal, inverse_pivots=(1 / pivots).astype(dtype))

    def solve(self, source: Float[np.ndarray, "*cell"]) -> Float[np.ndarray, "*cell"]:
        """Return u with -Δu = source."""
        shape, dtype = self.inverse_pivots.shape, self.inverse_pivots.dtype
        axes = tuple(range(1, len(shape)))
        modes = source.astype(dtype)
        if axes:
            modes = fft.dstn(modes, type=2, axes=axes, norm="ortho", overwrite_x=True)
        systems = (shape[0], prod(shape[1:]))
        _eliminate(
            modes.reshape(systems),
            self.inverse_pivots.reshape(systems),
            dtype.type(self.off_diagonal),
        )
        if axes:
            modes = fft.idstn(modes, type=2, axes=axes, norm="ortho", overwrite_x=True)
        return modes


# Kernels carry no types: the test run wraps annotated functions, which numba cannot compile.
@njit(cache=True)
@no_type_check
def _eliminate(values, inverse_pivots, off_diagonal):
    """Solve one tridiagonal system down each column, in place (Thomas)."""
    n_rows, n_columns = values.shape
    for column in range(n_columns):
        values[0, column] *= inverse_pivots[0, column]
    for row in range(1, n_rows):
        for column in range(n_columns):
            values[row, column] = (
                values[row, column] + off_diagonal * values[row - 1, column]
            ) * inverse_pivots[row, column]
    for row in range(n_rows - 2, -1, -1):
        for column in range(n_columns):
            values[row, column] += (
                off_diagonal * inverse_pivots[row, column] * values[row + 1, column]
            )
