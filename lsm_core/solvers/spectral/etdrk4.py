"""Exponential time differencing of fourth order for stiff equations with a diagonal linear part."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float


@dataclass(frozen=True, kw_only=True)
class Etdrk4:
    """The coefficients of one time step of u_t = L u + N(u), of order 4.

    Cox and Matthews (2002), equations 26 to 29; L is integrated exactly.
    """

    half_decay: Float[np.ndarray, "*mode"]
    decay: Float[np.ndarray, "*mode"]
    half_weight: Float[np.ndarray, "*mode"]
    first_weight: Float[np.ndarray, "*mode"]
    middle_weight: Float[np.ndarray, "*mode"]
    last_weight: Float[np.ndarray, "*mode"]

    @classmethod
    def for_step(cls, linear: Float[np.ndarray, "*mode"], step: float) -> "Etdrk4":
        """Return the coefficients for the eigenvalues `linear` of L and one step size.

        The weights are means over a circle around each eigenvalue (Kassam and Trefethen 2005):
        the formulas themselves lose all digits when `step * linear` is small.
        """
        n_contour_points = 32
        # Points of the upper half circle: the lower half gives the complex conjugate.
        circle = np.exp(1j * np.pi * (np.arange(n_contour_points) + 0.5) / n_contour_points)
        z = step * linear[..., None] + circle
        exp_z = np.exp(z)

        def contour_mean(
            values: Complex[np.ndarray, "*mode contour"],
        ) -> Float[np.ndarray, "*mode"]:
            return step * values.mean(axis=-1).real

        return cls(
            half_decay=np.exp(step * linear / 2),
            decay=np.exp(step * linear),
            half_weight=contour_mean((np.exp(z / 2) - 1) / z),
            first_weight=contour_mean((-4 - z + exp_z * (4 - 3 * z + z**2)) / z**3),
            middle_weight=contour_mean(2 * (2 + z + exp_z * (z - 2)) / z**3),
            last_weight=contour_mean((-4 - 3 * z - z**2 + exp_z * (4 - z)) / z**3),
        )

    def advance(
        self,
        state: Complex[np.ndarray, "*batch_and_mode"],
        nonlinear: Callable[
            [Complex[np.ndarray, "*batch_and_mode"]], Complex[np.ndarray, "*batch_and_mode"]
        ],
    ) -> Complex[np.ndarray, "*batch_and_mode"]:
        """Return the state one step later; axes in front of the modes are a batch."""
        at_start = nonlinear(state)
        halfway = self.half_decay * state
        first = halfway + self.half_weight * at_start
        at_first = nonlinear(first)
        second = halfway + self.half_weight * at_first
        at_second = nonlinear(second)
        third = self.half_decay * first + self.half_weight * (2 * at_second - at_start)
        at_third = nonlinear(third)
        return (
            self.decay * state
            + self.first_weight * at_start
            + self.middle_weight * (at_first + at_second)
            + self.last_weight * at_third
        )
