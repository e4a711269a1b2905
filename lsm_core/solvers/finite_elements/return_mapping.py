"""Return of a trial stress to the von Mises yield surface in plane stress.

The stress vector is (xx, yy, xy). With xi = s^T P s = 2/3 (von Mises stress)^2 and linear isotropic
hardening, implicit Euler asks for the plastic multiplier m at which

    sqrt(3/2 xi(m)) = yield stress + hardening modulus * equivalent plastic strain(m),
    xi(m) = (xx + yy)^2 / (6 (1 + m E / (3 (1 - nu)))^2)
          + ((yy - xx)^2 / 2 + 2 xy^2) / (1 + 2 G m)^2,

after Simo and Taylor (1986): in plane stress the return is not radial, but its two parts, sum and
difference, are scaled by known functions of m.
"""

from dataclasses import dataclass
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

MAX_ITERATIONS = 30
TOLERANCE = 1e-10


class YieldConstants(NamedTuple):
    """The numbers of the return mapping, in the order in which the compiled loop reads them."""

    young_modulus: float
    poisson_ratio: float
    yield_stress: float
    hardening_modulus: float


@dataclass(frozen=True, kw_only=True)
class ElasticPlastic:
    """An isotropic elastic-plastic metal; stresses in MPa, density in t/mm^3.

    With millimetres and seconds these units give forces in N. A hardening modulus of zero is
    perfect plasticity.
    """

    young_modulus: float = 200e3
    poisson_ratio: float = 0.3
    yield_stress: float = 70.0
    hardening_modulus: float = 0.0
    density: float = 7.85e-9

    def __post_init__(self) -> None:
        if min(self.young_modulus, self.yield_stress, self.density) <= 0:
            raise ValueError(
                f"stiffness, yield stress and density must be positive, got {self.young_modulus}, "
                f"{self.yield_stress} and {self.density}"
            )
        if not 0 <= self.poisson_ratio < 0.5 or self.hardening_modulus < 0:
            raise ValueError(
                f"Poisson's ratio must be in [0, 0.5) and hardening not negative, got "
                f"{self.poisson_ratio} and {self.hardening_modulus}"
            )

    @property
    def wave_speed(self) -> float:
        """Return the speed of elastic pressure waves in a sheet, in mm/s."""
        return float(np.sqrt(self.young_modulus / (self.density * (1 - self.poisson_ratio**2))))

    @property
    def yield_constants(self) -> YieldConstants:
        """Return what the return mapping needs to know."""
        return YieldConstants(
            float(self.young_modulus),
            float(self.poisson_ratio),
            float(self.yield_stress),
            float(self.hardening_modulus),
        )


# The type checks of the test run wrap annotated functions, which numba cannot compile:
# `no_type_check` leaves compiled functions as they are.
@njit(cache=True, error_model="numpy")
@no_type_check
def return_to_yield_surface(stress, plastic_strain, thickness_strain, constants):
    """Move trial stresses beyond the yield surface back to it, in place; return the failures.

    `stress` is (3, *elements), `plastic_strain` the equivalent plastic strain. The increment of
    the strain across the sheet is changed from its elastic value to that of the final stress.
    """
    young, poisson, yield_stress, hardening = constants
    n_failures = 0
    for i in range(stress.shape[1]):
        for j in range(stress.shape[2]):
            total = stress[0, i, j] + stress[1, i, j]
            difference = stress[1, i, j] - stress[0, i, j]
            bulk = total * total / 6
            shear = difference * difference / 2 + 2 * stress[2, i, j] * stress[2, i, j]
            limit = yield_stress + hardening * plastic_strain[i, j]
            if 1.5 * (bulk + shear) <= limit * limit:
                continue
            multiplier, bulk_factor, shear_factor, strained, converged = _plastic_multiplier(
                bulk, shear, plastic_strain[i, j], constants
            )
            if not converged:
                n_failures += 1
            # Elastic strain follows the stress that is left; plastic strain keeps the volume.
            left = bulk_factor * total
            thickness_strain[i, j] += poisson / young * (total - left) - multiplier * left / 3
            stress[0, i, j] = (left - shear_factor * difference) / 2
            stress[1, i, j] = (left + shear_factor * difference) / 2
            stress[2, i, j] *= shear_factor
            plastic_strain[i, j] = strained
    return n_failures


@njit(cache=True, error_model="numpy")
@no_type_check
def _plastic_multiplier(bulk, shear, plastic_strain, constants):
    """Return the multiplier, the two factors on the stress, the new strain, and if it converged.

    Newton's method for yield stress / von Mises stress = 1: the left side is concave in the
    multiplier and nearly linear, so that the iteration climbs to the root from zero.
    """
    young, poisson, yield_stress, hardening = constants
    bulk_rate, shear_rate = young / (3 * (1 - poisson)), young / (1 + poisson)
    multiplier, strained = 0.0, plastic_strain
    bulk_factor, shear_factor = 1.0, 1.0
    for _ in range(MAX_ITERATIONS):
        bulk_factor = 1 / (1 + bulk_rate * multiplier)
        shear_factor = 1 / (1 + shear_rate * multiplier)
        bulk_now = bulk * bulk_factor * bulk_factor
        shear_now = shear * shear_factor * shear_factor
        von_mises = np.sqrt(1.5 * (bulk_now + shear_now))
        strained = plastic_strain + multiplier * von_mises * (2 / 3)
        ratio = (yield_stress + hardening * strained) / von_mises
        if abs(ratio - 1) < TOLERANCE:
            return multiplier, bulk_factor, shear_factor, strained, True
        decay = bulk_now * bulk_factor * bulk_rate + shear_now * shear_factor * shear_rate
        slope = -1.5 * decay / von_mises
        limit_slope = hardening * (2 / 3) * (von_mises + multiplier * slope)
        multiplier += (1 - ratio) * von_mises / (limit_slope - ratio * slope)
    return multiplier, bulk_factor, shear_factor, strained, False


def von_mises_stress(stress: Float[np.ndarray, "3 *elements"]) -> Float[np.ndarray, "*elements"]:
    """Return the von Mises stress of plane stress vectors (xx, yy, xy)."""
    first, second, shear = stress
    return np.sqrt(first**2 - first * second + second**2 + 3 * shear**2)
