"""Incompressible flow on the unit torus in two dimensions, as the transport of its vorticity."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, isfinite

import numpy as np
from jaxtyping import Complex, Float
from scipy import fft

from lsm_core.solvers.spectral.integrating_factor import IntegratingFactorRk4

# The velocity grows under a force, so that the step is chosen again after this time.
STEP_LIFETIME = 0.25


def vorticity_at_unit_times(
    equation: "VorticityEquation", initial: Complex[np.ndarray, "mode_x mode_y"], courant: float
) -> Iterator[Float[np.ndarray, "x y"]]:
    """Yield the vorticity on the grid at times 1, 2, 3, ..., of fourth order in the time step.

    `initial` is in the layout of `rfft2` with `norm="forward"`, of any size. The step is
    courant / (n_points (max|u| + max|v|)) or a little less, and depends on this one flow alone;
    the method is stable for `courant` up to about 1.35.
    """
    _keep_freed_memory()
    modes = resolved_modes(initial, equation.n_points).astype(equation.complex_type)
    methods: dict[int, IntegratingFactorRk4] = {}
    time = 0.0
    while True:
        speed = equation.largest_speed(modes)
        if not isfinite(speed):
            raise FloatingPointError(
                f"the flow is no longer finite at time {time:g}; lower courant, now {courant:g}"
            )
        n_steps = max(1, ceil(STEP_LIFETIME * equation.n_points * speed / courant))
        if n_steps not in methods:
            methods[n_steps] = IntegratingFactorRk4.for_step(
                equation.diffusion, STEP_LIFETIME / n_steps, equation.dtype
            )
        # A flow that blows up is reported above, in words.
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(n_steps):
                modes = methods[n_steps].advance(modes, equation.advection_and_force)
        time += STEP_LIFETIME
        if time.is_integer():
            yield equation.on_grid(modes[None])[0]


def _keep_freed_memory() -> None:
    """Free one large block, after which glibc keeps freed memory of smaller ones for reuse.

    Before that, the temporary arrays of each step go back to the system and come again page by
    page, which takes 40 % of the time with 256 points. Other allocators do not mind.
    """
    np.empty(2**24, dtype=np.uint8)


def resolved_modes(
    modes: Complex[np.ndarray, "mode_x mode_y"], n_points: int
) -> Complex[np.ndarray, "resolved_x resolved_y"]:
    """Return the modes that `n_points` a side resolve under the 2/3 rule, padded with zeros.

    The layout has frequencies 0 ... K, -K ... -1 along x and 0 ... K along y, with K the largest
    whole number below n_points / 3: products of two such fields have no aliasing error on them.
    """
    highest = (n_points - 1) // 3
    shared = min(highest, (modes.shape[0] - 1) // 2)
    resolved = np.zeros((2 * highest + 1, highest + 1), dtype=modes.dtype)
    resolved[: shared + 1, : shared + 1] = modes[: shared + 1, : shared + 1]
    resolved[-shared:, : shared + 1] = modes[-shared:, : shared + 1]
    return resolved


@dataclass(frozen=True, kw_only=True)
class VorticityEquation:
    """w_t + u w_x + v w_y = viscosity Δw + f, with u = psi_y, v = -psi_x and -Δpsi = w.

    `force` holds the modes of f in the layout of `rfft2` with `norm="forward"`. States are modes
    in the layout of `resolved_modes`.
    """

    n_points: int
    viscosity: float
    force: Complex[np.ndarray, "mode_x mode_y"]
    dtype: type[np.float32] | type[np.float64]

    @property
    def complex_type(self) -> type[np.complex64] | type[np.complex128]:
        """Return the type of modes."""
        return np.complex64 if self.dtype is np.float32 else np.complex128

    @cached_property
    def diffusion(self) -> Float[np.ndarray, "mode_x mode_y"]:
        """Return the eigenvalues of viscosity Δ, in double precision."""
        along_x, along_y = self._wavenumbers
        return -self.viscosity * (along_x**2 + along_y**2)

    def advection_and_force(
        self, modes: Complex[np.ndarray, "mode_x mode_y"]
    ) -> Complex[np.ndarray, "mode_x mode_y"]:
        """Return f - u w_x - v w_y.

        The advection is (∂xx - ∂yy)(u v) + ∂xy(v² - u²), which takes four transforms, where the
        form div(u w, v w) takes five; without aliasing the two are equal.
        """
        u, v = self.on_grid(self._velocity_symbols * modes)
        products = np.empty((2, *u.shape), dtype=self.dtype)
        np.multiply(u, v, out=products[0])
        np.multiply(v - u, v + u, out=products[1])
        mixed, difference = self._to_modes(products)
        along_x_and_y, along_both = self._product_symbols
        return along_x_and_y * mixed + along_both * difference + self._resolved_force

    def largest_speed(self, modes: Complex[np.ndarray, "mode_x mode_y"]) -> float:
        """Return max|u| + max|v|, the speed that bounds the time step."""
        u, v = self.on_grid(self._velocity_symbols * modes)
        return float(abs(u).max()) + float(abs(v).max())

    def on_grid(
        self, modes: Complex[np.ndarray, "field mode_x mode_y"]
    ) -> Float[np.ndarray, "field x y"]:
        """Return the values of some fields on the grid."""
        # Columns beyond the highest frequency are zero, and are left out of the first transform.
        n_fields, _, n_columns = modes.shape
        padded = np.zeros((n_fields, self.n_points, n_columns), dtype=self.complex_type)
        padded[:, :n_columns] = modes[:, :n_columns]
        padded[:, 1 - n_columns :] = modes[:, n_columns:]
        columns = fft.ifft(padded, axis=1, norm="forward", overwrite_x=True)
        return fft.irfft(columns, self.n_points, axis=2, norm="forward", overwrite_x=True)

    def _to_modes(
        self, fields: Float[np.ndarray, "field x y"]
    ) -> Complex[np.ndarray, "field mode_x mode_y"]:
        n_columns = (self.n_points - 1) // 3 + 1
        rows = fft.rfft(fields, axis=2, norm="forward", overwrite_x=True)[:, :, :n_columns]
        modes = fft.fft(rows, axis=1, norm="forward")
        return np.concatenate([modes[:, :n_columns], modes[:, 1 - n_columns :]], axis=1)

    @cached_property
    def _wavenumbers(
        self,
    ) -> tuple[Float[np.ndarray, "mode_x 1"], Float[np.ndarray, "1 mode_y"]]:
        highest = (self.n_points - 1) // 3
        along_x = np.fft.ifftshift(np.arange(-highest, highest + 1))
        along_y = np.arange(highest + 1)
        return 2 * np.pi * along_x[:, None], 2 * np.pi * along_y[None, :]

    @cached_property
    def _velocity_symbols(self) -> Complex[np.ndarray, "2 mode_x mode_y"]:
        """Return what turns the modes of w into those of u and v."""
        along_x, along_y = self._wavenumbers
        squared = along_x**2 + along_y**2
        squared[0, 0] = 1.0  # The mean of the vorticity moves nothing.
        return np.stack([1j * along_y / squared, -1j * along_x / squared]).astype(self.complex_type)

    @cached_property
    def _product_symbols(self) -> Float[np.ndarray, "2 mode_x mode_y"]:
        """Return -(∂xx - ∂yy) and -∂xy, for the products u v and v² - u²."""
        along_x, along_y = self._wavenumbers
        return np.stack([along_x**2 - along_y**2, along_x * along_y]).astype(self.dtype)

    @cached_property
    def _resolved_force(self) -> Complex[np.ndarray, "mode_x mode_y"]:
        return resolved_modes(self.force, self.n_points).astype(self.complex_type)
