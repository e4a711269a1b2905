"""Fourier layers that treat one axis at a time."""

from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.fourier_modes import analyze, map_modes, synthesize


class FactorizedSpectralConvolution(nn.Module):
    """The sum over the axes of a map of the lowest modes along that axis alone.

    The weights grow with the number of axes, where those of a joint transform grow with the
    product of the modes. Fewer modes are used along an axis that has fewer.
    """

    def __init__(self, n_inputs: int, n_outputs: int, n_modes: tuple[int, ...]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            nn.init.xavier_normal_(torch.empty(n_inputs, n_outputs, count, 2)) for count in n_modes
        )

    def forward(
        self, field: Float[Tensor, "batch *space channel"]
    ) -> Float[Tensor, "batch *space feature"]:
        """Return the sum of the mapped fields."""
        parts = (self._along(field, axis, weight) for axis, weight in enumerate(self.weights, 1))
        return reduce(torch.add, parts)

    def _along(self, field: Tensor, axis: int, weight: Tensor) -> Tensor:
        """Return the field with its modes along one axis mapped."""
        n_points = field.shape[axis]
        used = min(weight.shape[2], n_points // 2 + 1)
        matrices = torch.view_as_complex(weight).movedim(2, 0)[:used]
        lines = analyze(field, axis, used).movedim(axis, -2)  # (batch, *others, mode, channel)
        mapped = map_modes(lines.flatten(0, -3), matrices)
        modes = mapped.view(*lines.shape[:-1], -1).movedim(-2, axis)
        return synthesize(modes, axis, n_points)
