"""Fourier layers: a linear map of the lowest modes of a field."""

from itertools import product
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn


class SpectralConvolution(nn.Module):
    """A linear map of channels for each of the lowest Fourier modes; other modes are dropped.

    Along the last axis the modes are 0 .. m-1, because the field is real; along the others also
    -m .. -1. Each choice of signs is one corner of the spectrum with weights of its own. Fewer
    modes are used on a grid that has fewer.
    """

    def __init__(self, n_inputs: int, n_outputs: int, n_modes: tuple[int, ...]) -> None:
        super().__init__()
        self.n_modes = n_modes
        n_corners = 2 ** (len(n_modes) - 1)
        # Real and imaginary parts, because fused optimisers do not take complex numbers.
        shape = (n_corners, n_inputs, n_outputs, *n_modes, 2)
        self.weight = nn.Parameter(torch.rand(shape) / (n_inputs * n_outputs))

    def forward(
        self, field: Float[Tensor, "batch *space channel"]
    ) -> Float[Tensor, "batch *space feature"]:
        """Return the field of the mapped modes."""
        space = field.shape[1:-1]
        axes = tuple(range(1, field.ndim - 1))
        spectrum = torch.fft.rfftn(field, dim=axes)
        weight = torch.view_as_complex(self.weight)
        result = spectrum.new_zeros(*spectrum.shape[:-1], weight.shape[2])
        for corner, corner_weight in zip(self._corners(space), weight, strict=True):
            modes = spectrum[(slice(None), *corner)]
            used = corner_weight[(slice(None), slice(None), *map(slice, modes.shape[1:-1]))]
            result[(slice(None), *corner)] = _mix(modes, used)
        return torch.fft.irfftn(result, s=space, dim=axes)

    def _corners(self, space: tuple[int, ...]) -> list[tuple[slice, ...]]:
        """Return the kept part of the spectrum for each choice of signs."""
        *leading, last = space
        bounds = [
            (slice(0, count), slice(size - count, size))
            for size, count in zip(
                leading, map(min, self.n_modes, [n // 2 for n in leading]), strict=True
            )
        ]
        real = slice(0, min(self.n_modes[-1], last // 2 + 1))
        return [(*signs, real) for signs in product(*bounds)]


def _mix(modes: Tensor, weight: Tensor) -> Tensor:
    """Return the modes with their channels mapped by the matrix of each mode."""
    batch, *shape, channels = modes.shape
    by_mode = modes.reshape(batch, prod(shape), channels).transpose(0, 1)
    matrices = weight.flatten(2).movedim(2, 0)
    return (by_mode @ matrices).transpose(0, 1).reshape(batch, *shape, -1)
