"""Fourier layers: a linear map of the lowest modes of a field."""

import torch
from jaxtyping import Complex
from torch import Tensor, nn

from lsm_core.layers.fourier_modes import (
    from_modes,
    lowest_weights,
    map_modes,
    to_modes,
    usable_modes,
)
from lsm_core.layers.shapes import Features, Field


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

    def forward(self, field: Field) -> Features:
        """Return the field of the mapped modes, in float32 whatever surrounds it."""
        space = tuple(field.shape[1:-1])
        used = usable_modes(self.n_modes, space)
        weight = lowest_weights(self._weight_by_mode(), used)
        return from_modes(map_modes(to_modes(field, used), weight), space)

    def _weight_by_mode(self) -> Complex[Tensor, "*mode channel feature"]:
        """Return the matrix of every mode, with both signs of an axis one after the other."""
        n_signed = len(self.n_modes) - 1
        weight = torch.view_as_complex(self.weight)
        signs = weight.unflatten(0, (2,) * n_signed) if n_signed else weight[0]
        # From (sign, sign, channel, feature, mode, mode, last mode), as in three dimensions, to
        # (sign, mode, sign, mode, last mode, channel, feature).
        channel, last = n_signed, 2 * n_signed + 2
        order = [axis for sign in range(n_signed) for axis in (sign, channel + 2 + sign)]
        signs = signs.permute(*order, last, channel, channel + 1)
        counts = (*(2 * count for count in self.n_modes[:-1]), self.n_modes[-1])
        return signs.reshape(*counts, *signs.shape[-2:])
