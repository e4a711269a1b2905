"""The Runge-Kutta method of fourth order with an integrating factor for a diagonal linear part."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float


@dataclass(frozen=True, kw_only=True)
class IntegratingFactorRk4:
    """One time step of u_t = L u + N(u), of order 4: the classical method for exp(-t L) u.

    Suited to a weak L, such as a small viscosity, where it costs less than `Etdrk4`; when L is
    stiff, its error grows with the stiffness.
    """

    step: float
    half_decay: Float[np.ndarray, "*mode"]
    decay: Float[np.ndarray, "*mode"]

    @classmethod
    def for_step(
        cls,
        linear: Float[np.ndarray, "*mode"],
        step: float,
        dtype: type[np.float32] | type[np.float64],
    ) -> "IntegratingFactorRk4":
        """Return the method for the eigenvalues `linear` of L, one step size and one precision."""
        return cls(
            step=step,
            half_decay=np.exp(step / 2 * linear).astype(dtype),
            decay=np.exp(step * linear).astype(dtype),
        )

    def advance(
        self,
        state: Complex[np.ndarray, "*mode"],
        nonlinear: Callable[[Complex[np.ndarray, "*mode"]], Complex[np.ndarray, "*mode"]],
    ) -> Complex[np.ndarray, "*mode"]:
        """Return the state one step later."""
        halfway, later = self.half_decay * state, self.decay * state
        at_start = nonlinear(state)
        at_first = nonlinear(halfway + self.step / 2 * (self.half_decay * at_start))
        at_second = nonlinear(halfway + self.step / 2 * at_first)
        at_third = nonlinear(later + self.step * (self.half_decay * at_second))
        return later + self.step / 6 * (
            self.decay * at_start + 2 * (self.half_decay * (at_first + at_second)) + at_third
        )
