"""The exact solution of the viscous Burgers equation."""

import numpy as np
from jaxtyping import Float


def cole_hopf(
    initial: Float[np.ndarray, " point"], *, viscosity: float, period: float, time: float
) -> Float[np.ndarray, " point"]:
    """Return u(time) on the points of `initial`, for periodic u_t + u u_x = viscosity u_xx.

    With phi = exp(-(1/(2 viscosity)) ∫ u dx) the equation becomes phi_t = viscosity phi_xx, and
    u = -2 viscosity phi_x / phi (Cole 1951, Hopf 1950). A mean m of u is removed first, which
    moves the frame, and put back by the shift x - m t. Exact up to rounding where the grid
    resolves phi; rounding grows with max(phi) / min(phi), so a small viscosity spoils it.
    """
    n_points = len(initial)
    wavenumber = 2 * np.pi / period * np.arange(n_points // 2 + 1)
    modes = np.fft.rfft(initial)
    mean = modes[0].real / n_points
    # The integral of the field without its mean is periodic; its own mean scales phi and cancels.
    integral_modes = np.zeros_like(modes)
    integral_modes[1:] = modes[1:] / (1j * wavenumber[1:])
    exponent = -np.fft.irfft(integral_modes, n_points) / (2 * viscosity)
    transformed = np.fft.rfft(np.exp(exponent - exponent.max()))
    evolved = transformed * np.exp(-(viscosity * wavenumber**2 + 1j * wavenumber * mean) * time)
    slope = np.fft.irfft(1j * wavenumber * evolved, n_points)
    return mean - 2 * viscosity * slope / np.fft.irfft(evolved, n_points)
