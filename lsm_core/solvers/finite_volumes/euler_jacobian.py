"""The derivative of the Euler fluxes as 4 x 4 blocks between cells, and an approximate inverse.

Along each axis a cell depends on itself and on two cells to either side: five *wide* blocks. The
approximate inverse is made from *narrow* blocks, those of the first-order scheme, in which it
depends on one cell to either side. The diagonal of the two axes is kept in two parts. Blocks along
the second axis are stored with that axis first.

All functions are numba kernels, without type checks for the reason given in `euler_fluxes.py`.
"""

from typing import no_type_check

import numpy as np
from numba import njit

from lsm_core.solvers.finite_volumes.euler_fluxes import reconstruct, roe_flux

DIFFERENCE = 1e-7
"""Step of the finite differences of the flux, for states of order one."""


@njit(cache=True)
@no_type_check
def add_flux_derivatives(states, normals, first_is_open, heat_ratio, threshold, wide, narrow):
    """Add the derivatives of the fluxes along the first axis with respect to the cell states."""
    n_cells, n_lines = wide.shape[0], wide.shape[1]
    left, right, flux, moved = np.empty(4), np.empty(4), np.empty(4), np.empty(4)
    by_left, by_right = np.empty((4, 4)), np.empty((4, 4))
    left_weights, right_weights = np.zeros((4, 4)), np.zeros((4, 4))
    for face in range(n_cells + 1):
        for line in range(n_lines):
            if face == 0 and not first_is_open[line]:
                continue
            reconstruct(states, face, line, threshold, left, right)
            _reconstruction_weights(states, face, line, threshold, left_weights, right_weights)
            normal_x, normal_y = normals[face, line, 0], normals[face, line, 1]
            roe_flux(left, right, normal_x, normal_y, heat_ratio, flux)
            for column in range(8):
                side, derivative = (left, by_left) if column < 4 else (right, by_right)
                value = side[column % 4]
                side[column % 4] = value + DIFFERENCE
                roe_flux(left, right, normal_x, normal_y, heat_ratio, moved)
                side[column % 4] = value
                for row in range(4):
                    derivative[row, column % 4] = (moved[row] - flux[row]) / DIFFERENCE
            _add_face(face, line, by_left, by_right, left_weights, right_weights, wide, narrow)


@njit(cache=True)
@no_type_check
def _add_face(face, line, by_left, by_right, left_weights, right_weights, wide, narrow):
    """Add the derivative of one flux to the cells before and behind the face."""
    n_cells = wide.shape[0]
    for cell in range(4):
        for row in range(4):
            for column in range(4):
                total = by_left[row, column] * left_weights[cell, column]
                total += by_right[row, column] * right_weights[cell, column]
                if face > 0:
                    wide[face - 1, line, cell + 1, row, column] += total
                if face < n_cells:
                    wide[face, line, cell, row, column] -= total
    for row in range(4):
        for column in range(4):
            if face > 0:
                narrow[face - 1, line, 1, row, column] += by_left[row, column]
                narrow[face - 1, line, 2, row, column] += by_right[row, column]
            if face < n_cells:
                narrow[face, line, 0, row, column] -= by_left[row, column]
                narrow[face, line, 1, row, column] -= by_right[row, column]


@njit(cache=True)
@no_type_check
def _reconstruction_weights(states, face, line, threshold, left_weights, right_weights):
    """Fill in how both states at a face depend on the four cells around it, by quantity."""
    for k in range(4):
        before, near_left = states[face, line + 2, k], states[face + 1, line + 2, k]
        near_right, after = states[face + 2, line + 2, k], states[face + 3, line + 2, k]
        step = near_right - near_left
        behind, ahead = _slope_derivatives(near_left - before, step, threshold)
        left_weights[0, k] = -0.5 * behind
        left_weights[1, k] = 1 + 0.5 * (behind - ahead)
        left_weights[2, k] = 0.5 * ahead
        behind, ahead = _slope_derivatives(step, after - near_right, threshold)
        right_weights[1, k] = 0.5 * behind
        right_weights[2, k] = 1 - 0.5 * (behind - ahead)
        right_weights[3, k] = -0.5 * ahead


@njit(cache=True)
@no_type_check
def _slope_derivatives(behind, ahead, threshold):
    """Return the derivatives of the limited slope by both of its differences."""
    behind_squared, ahead_squared = behind * behind + threshold, ahead * ahead + threshold
    total = behind_squared + ahead_squared
    slope = (ahead_squared * behind + behind_squared * ahead) / total
    product = 2 * behind * ahead
    return (
        (ahead_squared + product - 2 * behind * slope) / total,
        (behind_squared + product - 2 * ahead * slope) / total,
    )


@njit(cache=True)
@no_type_check
def add_wall_derivatives(normals_j, n_wake, wide_j, narrow_j):
    """Add the derivatives of the wall pressure to the blocks along the second axis."""
    for i in range(n_wake, normals_j.shape[1] - n_wake):
        for k in range(2):
            wide_j[0, i, 2, 1 + k, 3] -= 1.5 * normals_j[0, i, k]
            wide_j[0, i, 3, 1 + k, 3] += 0.5 * normals_j[0, i, k]
            narrow_j[0, i, 1, 1 + k, 3] -= normals_j[0, i, k]


@njit(cache=True)
@no_type_check
def add_time_term(states, rates, heat_ratio, wide, narrow):
    """Add the derivative of the conserved quantities, times a rate for each cell."""
    for i in range(wide.shape[0]):
        for j in range(wide.shape[1]):
            density, rate = states[i + 2, j + 2, 0], rates[i, j]
            u, v = states[i + 2, j + 2, 1], states[i + 2, j + 2, 2]
            for block in (wide[i, j, 2], narrow[i, j, 1]):
                block[0, 0] += rate
                block[1, 0] += rate * u
                block[1, 1] += rate * density
                block[2, 0] += rate * v
                block[2, 2] += rate * density
                block[3, 0] += rate * 0.5 * (u * u + v * v)
                block[3, 1] += rate * density * u
                block[3, 2] += rate * density * v
                block[3, 3] += rate / (heat_ratio - 1)


@njit(cache=True)
@no_type_check
def multiply(wide, changes, product):
    """Fill in the blocks along the first axis times a change of the states, ghosts filled."""
    for cell in range(wide.shape[0]):
        for line in range(wide.shape[1]):
            for row in range(4):
                total = 0.0
                for offset in range(5):
                    for column in range(4):
                        total += (
                            wide[cell, line, offset, row, column]
                            * changes[cell + offset, line + 2, column]
                        )
                product[cell, line, row] = total


@njit(cache=True)
@no_type_check
def factorize(narrow_i, narrow_j, inverses):
    """Fill in the inverse pivots of an incomplete factorisation without fill.

    On a mesh of quadrilaterals such a factorisation changes only the diagonal blocks. Neighbours
    across the wake are left out of it.
    """
    pivot = np.empty((4, 4))
    for i in range(inverses.shape[0]):
        for j in range(inverses.shape[1]):
            for row in range(4):
                for column in range(4):
                    pivot[row, column] = (
                        narrow_i[i, j, 1, row, column] + narrow_j[j, i, 1, row, column]
                    )
            if i > 0:
                _eliminate(narrow_i[i, j, 0], inverses[i - 1, j], narrow_i[i - 1, j, 2], pivot)
            if j > 0:
                _eliminate(narrow_j[j, i, 0], inverses[i, j - 1], narrow_j[j - 1, i, 2], pivot)
            _invert(pivot, inverses[i, j])


@njit(cache=True)
@no_type_check
def _eliminate(lower, inverse, upper, pivot):
    """Subtract lower @ inverse @ upper from a pivot."""
    for row in range(4):
        for middle in range(4):
            factor = 0.0
            for k in range(4):
                factor += lower[row, k] * inverse[k, middle]
            for column in range(4):
                pivot[row, column] -= factor * upper[middle, column]


@njit(cache=True)
@no_type_check
def _invert(matrix, inverse):
    """Fill in the inverse of a 4 x 4 matrix, destroying it: elimination with exchange of rows.

    The library routine takes ten times as long on matrices so small. A singular matrix gives
    infinities.
    """
    for row in range(4):
        for column in range(4):
            inverse[row, column] = 1.0 if row == column else 0.0
    for step in range(4):
        largest = step
        for row in range(step + 1, 4):
            if abs(matrix[row, step]) > abs(matrix[largest, step]):
                largest = row
        for column in range(4):
            exchanged = matrix[step, column]
            matrix[step, column] = matrix[largest, column]
            matrix[largest, column] = exchanged
            exchanged = inverse[step, column]
            inverse[step, column] = inverse[largest, column]
            inverse[largest, column] = exchanged
        scale = 1 / matrix[step, step]
        for column in range(4):
            matrix[step, column] *= scale
            inverse[step, column] *= scale
        for row in range(4):
            if row != step:
                factor = matrix[row, step]
                for column in range(4):
                    matrix[row, column] -= factor * matrix[step, column]
                    inverse[row, column] -= factor * inverse[step, column]


@njit(cache=True)
@no_type_check
def substitute(narrow_i, narrow_j, inverses, right_side, solution):
    """Fill in the solution of the incomplete factors, forward and then backward over the cells."""
    n_i, n_j = inverses.shape[0], inverses.shape[1]
    rest = np.empty(4)
    for i in range(n_i):
        for j in range(n_j):
            for k in range(4):
                rest[k] = right_side[i, j, k]
                solution[i, j, k] = 0.0
            if i > 0:
                _add(narrow_i[i, j, 0], solution[i - 1, j], -1.0, rest)
            if j > 0:
                _add(narrow_j[j, i, 0], solution[i, j - 1], -1.0, rest)
            _add(inverses[i, j], rest, 1.0, solution[i, j])
    for i in range(n_i - 1, -1, -1):
        for j in range(n_j - 1, -1, -1):
            for k in range(4):
                rest[k] = 0.0
            if i < n_i - 1:
                _add(narrow_i[i, j, 2], solution[i + 1, j], 1.0, rest)
            if j < n_j - 1:
                _add(narrow_j[j, i, 2], solution[i, j + 1], 1.0, rest)
            _add(inverses[i, j], rest, -1.0, solution[i, j])


@njit(cache=True)
@no_type_check
def _add(block, vector, sign, total):
    """Add block @ vector with a sign."""
    for row in range(4):
        product = 0.0
        for column in range(4):
            product += block[row, column] * vector[column]
        total[row] += sign * product
