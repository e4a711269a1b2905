"""The lowest Fourier modes of a field, to and from grids of any size.

A field of n points x = j / n along an axis has the coefficients

    c_k = 1/n sum over j of u_j exp(-2 pi i k j / n),    u(x) = sum over k of c_k exp(2 pi i k x)

which do not depend on n while the field holds no higher modes. Only a few of them are wanted, so
each axis is a product with a small matrix: as many operations a point as there are modes, few
passes through memory, and several times as fast on processors as a whole fast transform.
"""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Complex, Complex128, Float, Float64, Num
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.constants import kept_on_device
from lsm_core.layers.precision import in_float32
from lsm_core.layers.shapes import Features, Field


class SpectralResampling(nn.Module):
    """A linear map of channels for each of the lowest modes, onto a grid of any size.

    Along the last axis the modes are 0 .. m-1, because the field is real; along the others also
    -m .. -1. Other modes are dropped. Fewer modes are used on a grid that has fewer.
    """

    def __init__(self, n_inputs: int, n_outputs: int, n_modes: tuple[int, ...]) -> None:
        super().__init__()
        self.n_modes = n_modes
        counts = (*(2 * n for n in n_modes[:-1]), n_modes[-1])
        # Real and imaginary parts, because fused optimisers do not take complex numbers. Of this
        # size they keep the mean square of the modes.
        parts = torch.randn(*counts, n_inputs, n_outputs, 2)
        self.weight = nn.Parameter(parts * (2 * n_inputs) ** -0.5)

    def forward(
        self, field: Field, space: tuple[int, ...] | None = None
    ) -> Float[Tensor, "batch *new_space feature"]:
        """Return the field of the mapped modes, on the same grid or on one of the shape given."""
        old_space = tuple(field.shape[1:-1])
        new_space = old_space if space is None else space
        used = usable_modes(usable_modes(self.n_modes, old_space), new_space)
        weight = lowest_weights(torch.view_as_complex(self.weight), used)
        return from_modes(map_modes(to_modes(field, used), weight), new_space)


class FourierLayers(nn.Module):
    """Sums of a spectral and a local map, one after the other, with GELU between them."""

    def __init__(self, spectral: Iterable[nn.Module], local: Iterable[nn.Module]) -> None:
        super().__init__()
        self.spectral, self.local = nn.ModuleList(spectral), nn.ModuleList(local)

    def forward(self, features: Field) -> Features:
        """Return the features after all layers."""
        for i, (spectral, local) in enumerate(zip(self.spectral, self.local, strict=True)):
            if i > 0:
                features = functional.gelu(features)
            features = spectral(features) + local(features)
        return features


@in_float32
def to_modes(field: Field, n_modes: tuple[int, ...]) -> Complex[Tensor, "batch *mode channel"]:
    """Return the coefficients of the lowest modes of a real field.

    They are in the order 0 .. m-1, -m .. -1 along each axis but the last, which has 0 .. m-1.
    """
    space = field.shape[1:-1]
    modes = analyze(field, len(space), n_modes[-1])
    for axis in reversed(range(len(space) - 1)):
        matrix = two_sided_analysis(space[axis], n_modes[axis], like=modes)
        modes = along_axis(matrix, modes, axis + 1)
    return modes


@in_float32
def from_modes(modes: Complex[Tensor, "batch *mode channel"], space: tuple[int, ...]) -> Field:
    """Return the real field that has these modes and no others: undo `to_modes`."""
    for axis, size in enumerate(space[:-1], start=1):
        matrix = two_sided_waves(size, modes.shape[axis] // 2, like=modes)
        modes = along_axis(matrix, modes, axis)
    return synthesize(modes, len(space), space[-1])


def map_modes(
    modes: Complex[Tensor, "batch *mode channel"],
    weight: Complex[Tensor, "*mode channel feature"],
) -> Complex[Tensor, "batch *mode feature"]:
    """Return the modes with their channels mapped by the matrix of each mode."""
    by_mode = modes.flatten(1, -2).transpose(0, 1)
    mapped = by_mode @ weight.flatten(0, -3)
    return mapped.transpose(0, 1).reshape(*modes.shape[:-1], -1)


def modes_of_axes(n_modes: int | tuple[int, ...], space: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of modes along each axis, given one for all or one for each."""
    if isinstance(n_modes, int):
        return (n_modes,) * len(space)
    if len(n_modes) != len(space):
        raise ValueError(f"n_modes {n_modes} has not one number for each axis of {space}")
    return n_modes


def usable_modes(n_modes: tuple[int, ...], space: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many of the modes a grid has, along each axis."""
    limits = (*(max(1, size // 2) for size in space[:-1]), space[-1] // 2 + 1)
    return tuple(map(min, n_modes, limits))


def lowest_weights(
    weight: Complex[Tensor, "*mode channel feature"], n_modes: tuple[int, ...]
) -> Complex[Tensor, "*lower channel feature"]:
    """Return the weights of the lowest modes, each still at the mode that it belongs to."""
    for axis, count in enumerate(n_modes[:-1]):
        size = weight.shape[axis]
        if size > 2 * count:
            negative = weight.narrow(axis, size - count, count)
            weight = torch.cat([weight.narrow(axis, 0, count), negative], dim=axis)
    return weight.narrow(len(n_modes) - 1, 0, n_modes[-1])


@in_float32
def analyze(
    field: Float[Tensor, "*point channel"], axis: int, n_modes: int
) -> Complex[Tensor, "*mode channel"]:
    """Return the modes 0 .. m-1 of real values along one axis."""
    matrix = analysis(field.shape[axis], n_modes, like=field)
    real, imaginary = along_axis(matrix, field, axis).chunk(2, dim=axis)
    return torch.complex(real, imaginary)


@in_float32
def synthesize(
    modes: Complex[Tensor, "*mode channel"], axis: int, n_points: int
) -> Float[Tensor, "*point channel"]:
    """Return the real values whose modes are 0 .. m-1 and their conjugates: undo `analyze`."""
    parts = torch.cat([modes.real, modes.imag], dim=axis)
    return along_axis(synthesis(n_points, modes.shape[axis], like=parts), parts, axis)


def along_axis(
    matrix: Num[Tensor, "new old"], field: Num[Tensor, "..."], axis: int
) -> Num[Tensor, "..."]:
    """Return the field with the values along an axis replaced by the products of the matrix.

    Nothing is copied before the product if the field is contiguous.
    """
    n_new, n_old = matrix.shape
    before, after = field.shape[:axis], field.shape[axis + 1 :]
    columns = field.reshape(before.numel(), n_old, after.numel())
    products = torch.bmm(matrix.expand(len(columns), -1, -1), columns)
    return products.view(*before, n_new, *after)


@kept_on_device
def analysis(n_points: int, n_modes: int) -> Float64[np.ndarray, "parts point"]:
    """Return the matrix from values to the real, then the imaginary parts of modes 0 .. m-1."""
    waves = _waves(n_points, n_modes).conj().T / n_points
    return np.concatenate([waves.real, waves.imag])


@kept_on_device
def synthesis(n_points: int, n_modes: int) -> Float64[np.ndarray, "point parts"]:
    """Return the matrix from real, then imaginary parts of modes 0 .. m-1 to real values."""
    # A mode and its conjugate add up to twice the real part, if they are not the same.
    own_conjugate = 2 * np.arange(n_modes) % n_points == 0
    waves = _waves(n_points, n_modes) * np.where(own_conjugate, 1, 2)
    return np.concatenate([waves.real, -waves.imag], axis=1)


def _two_sided(n_points: int, n_modes: int) -> Complex128[np.ndarray, "point mode"]:
    """Return the waves for k = 0 .. m-1, -m .. -1."""
    waves = _waves(n_points, n_modes + 1)
    return np.concatenate([waves[:, :-1], waves[:, :0:-1].conj()], axis=1)


@kept_on_device
def two_sided_analysis(n_points: int, n_modes: int) -> Complex128[np.ndarray, "mode point"]:
    """Return the matrix from values to the modes 0 .. m-1, -m .. -1."""
    return _two_sided(n_points, n_modes).conj().T / n_points


two_sided_waves = kept_on_device(_two_sided)
"""The matrix back from these modes to values."""


@lru_cache(maxsize=256)
def _waves(n_points: int, n_modes: int) -> Complex128[np.ndarray, "point mode"]:
    """Return exp(2 pi i k x) at the points x = j / n, for k = 0 .. m-1."""
    # The remainder keeps the angles exact on long axes.
    turns = np.outer(np.arange(n_points), np.arange(n_modes)) % n_points / n_points
    return np.exp(2j * np.pi * turns)
