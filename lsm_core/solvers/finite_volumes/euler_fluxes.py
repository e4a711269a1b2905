"""Fluxes of the Euler equations between cells, to second order and without new extrema at shocks.

Cell states are density, velocity x, velocity y, pressure; residuals are balances of mass, momentum
x, momentum y, energy. State arrays have two ghost layers on every side.

All functions are numba kernels. The test run wraps annotated functions to check shapes, which numba
cannot compile, so kernels carry `no_type_check`; `euler.py` is the typed way in. Those that name
"the first axis" serve the second as well: they are given contiguous transposed arrays, so that they
are compiled once and run along memory.
"""

from typing import no_type_check

import numpy as np
from numba import njit

ACOUSTIC_FIX = 0.1
CONVECTIVE_FIX = 0.02
"""Below these fractions of the speed of sound, wave speeds are rounded off (Harten)."""


@njit(cache=True)
@no_type_check
def fill_ghosts(states, n_wake, outside):
    """Set the ghost layers: the state outside, the cells across the wake, the wall extrapolated.

    This is linear in the states, so it serves changes of the state too, with nothing outside.
    """
    n_i, n_j = states.shape[0] - 4, states.shape[1] - 4
    for i in range(n_i + 4):
        for j in range(n_j + 4):
            if i < 2 or i >= n_i + 2 or j >= n_j + 2:
                for k in range(4):
                    states[i, j, k] = outside[k]
    for i in range(n_i):
        if n_wake <= i < n_i - n_wake:
            # A mirror image would flatten the slope in the first cell, and the loss of accuracy
            # there shows as entropy all along the wall.
            for k in range(4):
                slope = states[i + 2, 2, k] - states[i + 2, 3, k]
                states[i + 2, 1, k] = states[i + 2, 2, k] + slope
                states[i + 2, 0, k] = states[i + 2, 2, k] + 2 * slope
        else:
            across = n_i - 1 - i
            for k in range(4):
                states[i + 2, 1, k] = states[across + 2, 2, k]
                states[i + 2, 0, k] = states[across + 2, 3, k]


@njit(cache=True)
@no_type_check
def add_fluxes(states, normals, first_is_open, heat_ratio, threshold, residual):
    """Add to each cell what leaves it along the first axis; closed first faces are left out."""
    n_cells, n_lines = residual.shape[0], residual.shape[1]
    left, right, flux = np.empty(4), np.empty(4), np.empty(4)
    for face in range(n_cells + 1):
        for line in range(n_lines):
            if face > 0 or first_is_open[line]:
                reconstruct(states, face, line, threshold, left, right)
                normal_x, normal_y = normals[face, line, 0], normals[face, line, 1]
                roe_flux(left, right, normal_x, normal_y, heat_ratio, flux)
                for k in range(4):
                    if face > 0:
                        residual[face - 1, line, k] += flux[k]
                    if face < n_cells:
                        residual[face, line, k] -= flux[k]


@njit(cache=True)
@no_type_check
def add_wall_fluxes(states, normals_j, n_wake, residual):
    """Add the pressure on the wall, extrapolated from two cells, to the cells that stand on it."""
    for i in range(n_wake, residual.shape[0] - n_wake):
        pressure = 1.5 * states[i + 2, 2, 3] - 0.5 * states[i + 2, 3, 3]
        residual[i, 0, 1] -= pressure * normals_j[0, i, 0]
        residual[i, 0, 2] -= pressure * normals_j[0, i, 1]


@njit(cache=True)
@no_type_check
def add_wave_speeds(states, normals, heat_ratio, speeds):
    """Add to each cell the speeds of flow and sound through its faces along the first axis."""
    n_cells, n_lines = speeds.shape[0], speeds.shape[1]
    for face in range(n_cells + 1):
        for line in range(n_lines):
            n_x, n_y = normals[face, line, 0], normals[face, line, 1]
            for cell in range(max(face - 1, 0), min(face + 1, n_cells)):
                density = states[cell + 2, line + 2, 0]
                u, v = states[cell + 2, line + 2, 1], states[cell + 2, line + 2, 2]
                sound = np.sqrt(heat_ratio * states[cell + 2, line + 2, 3] / density)
                speeds[cell, line] += abs(u * n_x + v * n_y) + sound * np.hypot(n_x, n_y)


@njit(cache=True)
@no_type_check
def reconstruct(states, face, line, threshold, left, right):
    """Fill in the states on both sides of a face, from limited slopes in the cells beside it."""
    for k in range(4):
        before, near_left = states[face, line + 2, k], states[face + 1, line + 2, k]
        near_right, after = states[face + 2, line + 2, k], states[face + 3, line + 2, k]
        step = near_right - near_left
        left[k] = near_left + 0.5 * limited_slope(near_left - before, step, threshold)
        right[k] = near_right - 0.5 * limited_slope(step, after - near_right, threshold)


@njit(cache=True)
@no_type_check
def limited_slope(behind, ahead, threshold):
    """Return the van Albada mean of two differences: small where they disagree.

    Differences well below the square root of the threshold are not limited. The mean is smooth, so
    that Newton's method converges.
    """
    behind_squared, ahead_squared = behind * behind + threshold, ahead * ahead + threshold
    return (ahead_squared * behind + behind_squared * ahead) / (behind_squared + ahead_squared)


@njit(cache=True)
@no_type_check
def roe_flux(left, right, normal_x, normal_y, heat_ratio, flux):
    """Fill in Roe's flux from left to right through a face with this normal."""
    area = np.sqrt(normal_x * normal_x + normal_y * normal_y)
    n_x, n_y = normal_x / area, normal_y / area
    r_l, u_l, v_l, p_l = left[0], left[1], left[2], left[3]
    r_r, u_r, v_r, p_r = right[0], right[1], right[2], right[3]
    through_l, through_r = u_l * n_x + v_l * n_y, u_r * n_x + v_r * n_y
    compression = heat_ratio / (heat_ratio - 1)
    h_l = compression * p_l / r_l + 0.5 * (u_l * u_l + v_l * v_l)
    h_r = compression * p_r / r_r + 0.5 * (u_r * u_r + v_r * v_r)

    # Roe's average of density, velocity and enthalpy
    ratio = np.sqrt(r_r / r_l)
    share = 1 / (1 + ratio)
    r, u, v = ratio * r_l, (u_l + ratio * u_r) * share, (v_l + ratio * v_r) * share
    h = (h_l + ratio * h_r) * share
    kinetic = 0.5 * (u * u + v * v)
    c_squared = (heat_ratio - 1) * (h - kinetic)
    c = np.sqrt(c_squared)
    through = u * n_x + v * n_y

    # Strength times speed of the waves: entropy, shear, sound forward and backward
    d_r, d_u, d_v, d_p = r_r - r_l, u_r - u_l, v_r - v_l, p_r - p_l
    d_through = d_u * n_x + d_v * n_y
    drift = _rounded(through, CONVECTIVE_FIX * c)
    entropy = drift * (d_r - d_p / c_squared)
    shear_x, shear_y = drift * r * (d_u - d_through * n_x), drift * r * (d_v - d_through * n_y)
    forward = _rounded(through + c, ACOUSTIC_FIX * c) * 0.5 * (d_p + r * c * d_through) / c_squared
    backward = _rounded(through - c, ACOUSTIC_FIX * c) * 0.5 * (d_p - r * c * d_through) / c_squared
    sound, lean = forward + backward, c * (forward - backward)

    mass_l, mass_r, half = r_l * through_l, r_r * through_r, 0.5 * area
    density, pressure = sound + entropy, p_l + p_r - lean
    flux[0] = half * (mass_l + mass_r - density)
    flux[1] = half * (mass_l * u_l + mass_r * u_r + n_x * pressure - density * u - shear_x)
    flux[2] = half * (mass_l * v_l + mass_r * v_r + n_y * pressure - density * v - shear_y)
    work = sound * h + lean * through + entropy * kinetic + u * shear_x + v * shear_y
    flux[3] = half * (mass_l * h_l + mass_r * h_r - work)


@njit(cache=True)
@no_type_check
def _rounded(speed, width):
    """Return the modulus of a wave speed, rounded off at zero."""
    modulus = abs(speed)
    if modulus < width:
        return (speed * speed + width * width) / (2 * width)
    return modulus
