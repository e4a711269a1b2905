"""Gaussian random fields, drawn mode by mode so that one seed is one function at any resolution."""

import numpy as np
from jaxtyping import Complex, Float
from scipy import fft


def random_stream(name: str, seed: int) -> np.random.Generator:
    """Return the random numbers of one seed, independent of those of every other name."""
    return np.random.default_rng([*name.encode(), seed])


def periodic_field_modes(
    generator: np.random.Generator,
    n_dims: int,
    n_points: int,
    *,
    scale: float,
    shift: float,
    power: float,
) -> Complex[np.ndarray, "*mode"]:
    """Return the Fourier modes of a draw from N(0, scale² (-Δ + shift)^(-power)) on the unit torus.

    The mode of frequency k has E|c_k|² = scale² (4 pi² |k|² + shift)^(-power), except the mean,
    which is zero. The layout is that of `rfftn` with `norm="forward"` on `n_points` along each
    axis. White noise in space is transformed, because its modes have the right symmetry by
    themselves; `n_points` therefore belongs to the law, and is not the resolution of the output.
    """
    noise = generator.standard_normal((n_points,) * n_dims)
    white_modes = fft.rfftn(noise, norm="ortho")
    frequencies = [np.fft.fftfreq(n_points, 1 / n_points)] * (n_dims - 1)
    frequencies.append(np.fft.rfftfreq(n_points, 1 / n_points))
    squared_frequency = sum(axis**2 for axis in np.meshgrid(*frequencies, indexing="ij"))
    deviation = scale * (4 * np.pi**2 * squared_frequency + shift) ** (-power / 2)
    deviation.flat[0] = 0.0
    return deviation * white_modes


def cosine_field_modes(
    generator: np.random.Generator,
    n_dims: int,
    n_modes: int,
    *,
    scale: float,
    shift: float,
    power: float,
) -> Float[np.ndarray, "*mode"]:
    """Return the cosine modes of a draw from N(0, scale² (-Δ + shift)^(-power)) on the unit box.

    The Laplacian has zero slope on the boundary. The mode of frequency k has the deviation
    scale (pi² |k|² + shift)^(-power/2), except the mean, which is zero, and multiplies the
    orthonormal product of 1 or √2 cos(pi k x) along each axis.
    """
    frequencies = np.meshgrid(*[np.arange(n_modes)] * n_dims, indexing="ij")
    squared_frequency = sum(axis**2 for axis in frequencies)
    deviation = scale * (np.pi**2 * squared_frequency + shift) ** (-power / 2)
    deviation.flat[0] = 0.0
    return deviation * generator.standard_normal((n_modes,) * n_dims)


def cosine_field_at_centres(
    modes: Float[np.ndarray, "*mode"], n_cells: int
) -> Float[np.ndarray, "*cell"]:
    """Return the field of some cosine modes at the cell centres (i + 1/2) / n_cells of each axis.

    It is the same function for any number of cells: modes beyond `n_cells` are not cut off, they
    take the values that they have on these points.
    """
    amplitudes = modes
    for axis in range(modes.ndim):
        amplitudes = np.moveaxis(_fold(np.moveaxis(amplitudes, axis, 0), n_cells), 0, axis)
    return fft.dctn(amplitudes, type=3)


def _fold(modes: Float[np.ndarray, "mode ..."], n_cells: int) -> Float[np.ndarray, "cell ..."]:
    """Return, along the first axis, the input of the cosine transform of type 3.

    At the centres, cos(pi k x) changes its sign under k -> 2 n - k, and is zero for k = n.
    """
    folded = np.zeros((n_cells, *modes.shape[1:]))
    for frequency, mode in enumerate(modes):
        turns, remainder = divmod(frequency, 2 * n_cells)
        sign = (-1) ** turns
        if remainder > n_cells:
            remainder, sign = 2 * n_cells - remainder, -sign
        if remainder != n_cells:
            folded[remainder] += (sign if frequency == 0 else sign * np.sqrt(2)) * mode
    folded[1:] /= 2  # The transform counts every mode but the first twice.
    return folded
