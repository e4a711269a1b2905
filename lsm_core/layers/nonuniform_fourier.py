"""Fourier layers between scattered points and a regular grid, after geo-FNO (Li et al., 2023).

Space is the unit cube, taken as periodic. The modes kept are those of `SpectralConvolution`:
0 .. m-1 along the last axis, because fields are real, and 0 .. m-1, -m .. -1 along the others,
in this order. Sums over points and sums over modes are both left without a factor, so that on a
uniform grid of n points there and back again is n times the field.
"""

from math import pi

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from lsm_core.layers.precision import in_float32
from lsm_core.layers.shapes import Features, Field

Positions = Float[Tensor, "batch point axis"]
Phases = Complex[Tensor, "batch point *mode"]


@in_float32
def mode_phases(positions: Positions, n_modes: int) -> Phases:
    """Return exp(2 pi i k.x) for every point x and every kept mode k.

    It is a product over axes, so that only a few exponentials are taken for each point.
    """
    rising = torch.arange(n_modes, device=positions.device)
    both_signs = torch.cat([rising, rising - n_modes])
    phases = torch.ones(positions.shape[:2], device=positions.device)
    *leading, last = positions.unbind(-1)
    for position, modes in (*((x, both_signs) for x in leading), (last, rising)):
        angle = 2 * pi * position.unsqueeze(-1) * modes
        axis_phases = torch.polar(torch.ones_like(angle), angle)  # (batch, point, mode of axis)
        between = (1,) * (phases.ndim - 2)
        phases = phases.unsqueeze(-1) * axis_phases.unflatten(-1, (*between, -1))
    return phases


def sum_over_points(
    values: Float[Tensor, "batch point channel"], phases: Phases
) -> Complex[Tensor, "batch *mode channel"]:
    """Return the sum over points of u(x) exp(-2 pi i k.x): on a uniform grid, its FFT."""
    real_and_imaginary = torch.view_as_real(phases).flatten(2)  # (batch, point, 2 modes)
    sums = (real_and_imaginary.mT @ values).unflatten(1, (*phases.shape[2:], 2))
    return torch.view_as_complex(sums.movedim(-2, -1).contiguous()).conj()


def sum_over_modes(
    coefficients: Complex[Tensor, "batch *mode channel"], phases: Phases
) -> Float[Tensor, "batch point channel"]:
    """Return the real field that has these coefficients, at the points of the phases.

    A coefficient stands for its conjugate at -k, too, which is not kept: all but those with
    last index 0 count twice. On a uniform grid this is the inverse FFT without its factor.
    """
    counts = torch.full(coefficients.shape[-2:], 2.0, device=coefficients.device)
    counts[0] = 1
    return _real_part(coefficients * counts, phases)


def released_sum_over_modes(
    coefficients: Complex[Tensor, "batch *mode channel"], phases: Phases, positions: Positions
) -> Float[Tensor, "batch point channel"]:
    """Return what the released code computes in place of `sum_over_modes`.

    It completes the spectrum by reversing the order of the modes of every axis. But the order
    0 .. m-1, -m .. -1 reversed is -1-k, not -k: conjugates stand one mode beside their place
    along all axes but the last. In the sum this shifts them by the phase of mode 1.
    """
    angle = 2 * pi * positions[..., :-1].sum(-1)
    shift = torch.polar(torch.ones_like(angle), angle)
    shifted = phases[..., 1:] * shift[(..., *[None] * (phases.ndim - 2))]
    return _real_part(coefficients, phases) + _real_part(coefficients[..., 1:, :], shifted)


def _real_part(coefficients: Tensor, phases: Tensor) -> Tensor:
    """Return the real part of the sum of all modes, by real matrix products."""
    waves = torch.view_as_real(phases.contiguous()).flatten(2)
    amplitudes = torch.view_as_real(coefficients.conj().resolve_conj().contiguous())
    amplitudes = amplitudes.movedim(-1, -2).flatten(1, -2)
    # The first mode is the mean of the field: often so large that terms added to it are rounded.
    return waves[..., 2:] @ amplitudes[:, 2:] + waves[..., :2] @ amplitudes[:, :2]


class ModeWeights(nn.Module):
    """A linear map of channels for each kept mode."""

    def __init__(self, n_inputs: int, n_outputs: int, n_modes: int, n_dims: int) -> None:
        super().__init__()
        modes = (2 * n_modes,) * (n_dims - 1) + (n_modes,)
        # Real and imaginary parts, because fused optimisers do not take complex numbers.
        shape = (*modes, n_inputs, n_outputs, 2)
        self.weight = nn.Parameter(torch.rand(shape) / (n_inputs * n_outputs))

    def forward(
        self, coefficients: Complex[Tensor, "batch *mode channel"]
    ) -> Complex[Tensor, "batch *mode feature"]:
        """Return the coefficients of the mapped field."""
        weight = torch.view_as_complex(self.weight)
        return torch.einsum("b...i,...io->b...o", coefficients, weight)


class PointsToGrid(nn.Module):
    """A spectral convolution of values at scattered points, evaluated on a regular grid."""

    def __init__(
        self, n_inputs: int, n_outputs: int, n_modes: int, grid_shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.n_modes, self.grid_shape = n_modes, grid_shape
        self.modes = ModeWeights(n_inputs, n_outputs, n_modes, len(grid_shape))

    @in_float32
    def forward(self, values: Float[Tensor, "batch point channel"], phases: Phases) -> Features:
        """Return the field on the grid, given the phases of the points' modes."""
        spectrum = self.modes(sum_over_points(values, phases))
        for axis, size in enumerate(self.grid_shape[:-1], start=1):
            rising, negative = spectrum.chunk(2, dim=axis)
            between = list(spectrum.shape)
            between[axis] = size - 2 * self.n_modes
            spectrum = torch.cat([rising, spectrum.new_zeros(between), negative], dim=axis)
        axes = tuple(range(1, spectrum.ndim - 1))
        return torch.fft.irfftn(spectrum, s=self.grid_shape, dim=axes)


class GridToPoints(nn.Module):
    """A spectral convolution of a field on a regular grid, evaluated at scattered points.

    `released_inverse` takes the released sum of modes in place of the right one.
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        n_modes: int,
        n_dims: int,
        *,
        released_inverse: bool = False,
    ) -> None:
        super().__init__()
        self.n_modes, self.released_inverse = n_modes, released_inverse
        self.modes = ModeWeights(n_inputs, n_outputs, n_modes, n_dims)

    @in_float32
    def forward(
        self, field: Field, phases: Phases, positions: Positions
    ) -> Float[Tensor, "batch point feature"]:
        """Return the values at the points, given their positions and the phases of their modes."""
        axes = tuple(range(1, field.ndim - 1))
        spectrum = torch.fft.rfftn(field, dim=axes)
        for axis in axes[:-1]:
            rising = spectrum.narrow(axis, 0, self.n_modes)
            negative = spectrum.narrow(axis, spectrum.shape[axis] - self.n_modes, self.n_modes)
            spectrum = torch.cat([rising, negative], dim=axis)
        coefficients = self.modes(spectrum.narrow(axes[-1], 0, self.n_modes))
        if self.released_inverse:
            return released_sum_over_modes(coefficients, phases, positions)
        return sum_over_modes(coefficients, phases)
