"""A rigid die with a random profile, and its frictionless contact with the top of a block."""

from dataclasses import dataclass
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit
from scipy.interpolate import PchipInterpolator


class DieProfile(NamedTuple):
    """A die as the compiled contact reads it: one cubic a piece, highest power first."""

    coefficients: np.ndarray
    piece_length: float


@dataclass(frozen=True, kw_only=True)
class Die:
    """A rigid tool over [0, length] whose lower surface is a smooth curve through equal knots.

    The curve is the monotone piecewise cubic of Fritsch and Carlson: between two knots it stays
    between their heights, so that its lowest point is a knot. Beyond its ends it goes on straight:
    a kink there would be a tooth that cuts into the bulging corner of the block.
    """

    heights: Float[np.ndarray, " knots"]
    length: float

    @property
    def knots(self) -> Float[np.ndarray, " knots"]:
        """Return the places of the knots."""
        return np.linspace(0.0, self.length, len(self.heights))

    def profile(self) -> DieProfile:
        """Return the curve in pieces, its lowest knot at zero."""
        curve = PchipInterpolator(self.knots, self.heights - self.heights.min())
        return DieProfile(np.ascontiguousarray(curve.c), self.length / (len(self.heights) - 1))

    def height(self, x: Float[np.ndarray, "*points"]) -> Float[np.ndarray, "*points"]:
        """Return the height of the surface above its lowest knot."""
        curve = PchipInterpolator(self.knots, self.heights - self.heights.min())
        inside = np.clip(x, 0.0, self.length)
        return curve(inside) + (x - inside) * curve(inside, 1)


def draw_die(
    generator: np.random.Generator, *, n_knots: int, amplitude: float, length: float
) -> Die:
    """Return a die whose knots are independent and uniform between 0 and the amplitude."""
    return Die(heights=generator.uniform(0.0, amplitude, n_knots), length=length)


@njit(cache=True, error_model="numpy")
@no_type_check
def height_and_slope(profile, x):
    """Return the surface at one place, straight beyond the ends of the die."""
    n_pieces = profile.coefficients.shape[1]
    length = n_pieces * profile.piece_length
    inside = min(max(x, 0.0), length)
    piece = min(int(inside / profile.piece_length), n_pieces - 1)
    t = inside - piece * profile.piece_length
    cubic, square, linear, constant = (
        profile.coefficients[0, piece],
        profile.coefficients[1, piece],
        profile.coefficients[2, piece],
        profile.coefficients[3, piece],
    )
    height = ((cubic * t + square) * t + linear) * t + constant
    slope = (3 * cubic * t + 2 * square) * t + linear
    return height + (x - inside) * slope, slope


@njit(cache=True, error_model="numpy")
@no_type_check
def push_below(profile, lowest, position, velocity, mass, step):
    """Push the nodes of the top and of the sides out of the die; return the force along y.

    `lowest` is the height of the die's lowest point at the end of the step; positions and
    velocities are those predicted without contact, (2, x, y), and are corrected in place. The sides
    count because material that bulges beyond the ends of the block would else rise past the die.
    """
    force = 0.0
    right, top = position.shape[1] - 1, position.shape[2] - 1
    for i in range(right + 1):
        force += mass[i, top] * _push_node(profile, lowest, position, velocity, step, i, top)
    for j in range(1, top):
        force += mass[0, j] * _push_node(profile, lowest, position, velocity, step, 0, j)
        force += mass[right, j] * _push_node(profile, lowest, position, velocity, step, right, j)
    return force


@njit(cache=True, error_model="numpy")
@no_type_check
def _push_node(profile, lowest, position, velocity, step, i, j):
    """Push one node out of the die along its normal, without friction; return its acceleration.

    The node lands on the surface if the surface is straight there.
    """
    height, slope = height_and_slope(profile, position[0, i, j])
    depth = position[1, i, j] - lowest - height
    if depth <= 0:
        return 0.0
    stretch = 1 + slope * slope
    shift_x, shift_y = depth * slope / stretch, -depth / stretch
    position[0, i, j] += shift_x
    position[1, i, j] += shift_y
    velocity[0, i, j] += shift_x / step
    velocity[1, i, j] += shift_y / step
    return shift_y / (step * step)


@njit(cache=True, error_model="numpy")
@no_type_check
def hold_above_floor(position, velocity, step):
    """Put nodes of the two free sides that would sink below y = 0 back on it, without friction."""
    for side in range(2):
        i = side * (position.shape[1] - 1)
        for j in range(1, position.shape[2]):
            depth = -position[1, i, j]
            if depth > 0:
                position[1, i, j] += depth
                velocity[1, i, j] += depth / step
