"""Residual blocks of convolutions, and what brings their fields from scale to scale.

No layer here mixes samples, and all of them treat a periodic axis as one without ends.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.by_dimension import CONVOLUTION_LAYERS
from lsm_core.layers.convolution import convolve
from lsm_core.layers.forms import suits_kernels
from lsm_core.layers.kernels.convolution import convolve_prepared
from lsm_core.layers.padding import Boundary
from lsm_core.layers.precision import in_float32
from lsm_core.layers.shapes import Features, Field

ChannelNormalization = Literal["instance", "none"]
FEW_TAPS = 3
"""Points of a kernel up to which a convolution is one product of neighbours side by side: on one
axis that is 2 to 4 times as fast as the kernels for planes."""
EPSILON = 1e-5
"""Added to variances, for channels that are the same everywhere."""
BRANCH = 0.3
"""Size of what a residual block adds at first, as a part of what convolutions usually give."""


class ResidualBlock(nn.Module):
    """x + conv(gelu(conv(normalised x))), with convolutions that are 3 wide."""

    def __init__(
        self, n_dims: int, width: int, boundary: Boundary, normalization: ChannelNormalization
    ) -> None:
        super().__init__()
        self.boundary, self.normalization = boundary, normalization
        layer = CONVOLUTION_LAYERS[n_dims]
        self.first, self.second = (layer(width, width, kernel_size=3) for _ in range(2))
        for convolution, gain in ((self.first, 1.0), (self.second, BRANCH)):
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
            convolution.weight.data *= gain

    def forward(self, field: Field) -> Field:
        """Return the features after the block."""
        prepared = field if self.normalization == "none" else normalized_channels(field)
        hidden = convolved(prepared, lambda same: same, self.first, self.boundary)
        return field + convolved(hidden, functional.gelu, self.second, self.boundary)


@in_float32
def normalized_channels(field: Field) -> Field:
    """Return each channel of each sample with mean zero and deviation one over its points.

    On a processor this is twice as fast as `layers.normalization`, whose points lie channel by
    channel.
    """
    channels = field.movedim(-1, 1)
    # torch's functional form refuses a single point, which the coarsest scale may have.
    same = torch.instance_norm(channels, None, None, None, None, True, 0.0, EPSILON, False)
    return same.movedim(1, -1)


def normalized(field: Field) -> Field:
    """Return each sample with mean zero and deviation one over all its points and channels."""
    return functional.layer_norm(field, field.shape[1:])


def convolved(
    field: Field,
    prepare: Callable[[Tensor], Tensor],
    layer: nn.Module,
    boundary: Boundary,
) -> Features:
    """Return the convolution of the prepared field."""
    weight, bias = layer.weight, layer.bias
    assert isinstance(weight, Tensor)
    assert isinstance(bias, Tensor)
    is_long = weight[0, 0].numel() > FEW_TAPS
    if is_long and suits_kernels(field):
        return convolve_prepared(prepare, (field,), weight, bias, boundary)
    prepared = prepare(field)
    if is_long:
        return convolve(prepared, weight, bias, boundary)
    before, after = neighbours(prepared, 1, boundary, repeats_ends=False)
    matrix = weight.permute(2, 1, 0).flatten(0, 1)
    return torch.cat([before, prepared, after], dim=-1) @ matrix + bias


def doubled(field: Field, boundary: Boundary) -> Float[Tensor, "batch *fine channel"]:
    """Return a field of twice as many points an axis, linear between the middles of its cells.

    Beyond the ends of an axis that is not periodic the field is constant.
    """
    for axis in range(1, field.ndim - 1):
        before, after = neighbours(field, axis, boundary, repeats_ends=True)
        halves = torch.lerp(field, before, 0.25), torch.lerp(field, after, 0.25)
        field = torch.stack(halves, dim=axis + 1).flatten(axis, axis + 1)
    return field


def neighbours(
    field: Field, axis: int, boundary: Boundary, *, repeats_ends: bool
) -> tuple[Field, Field]:
    """Return at every point the value of the point before it, and of the one after it.

    Beyond the ends of an axis that is not periodic there are zeros, or the ends themselves.
    """
    if boundary == "circular":
        return field.roll(1, axis), field.roll(-1, axis)
    n_others = field.shape[axis] - 1
    ends = field.narrow(axis, 0, 1), field.narrow(axis, n_others, 1)
    first, last = ends if repeats_ends else map(torch.zeros_like, ends)
    before = torch.cat([first, field.narrow(axis, 0, n_others)], dim=axis)
    after = torch.cat([field.narrow(axis, 1, n_others), last], dim=axis)
    return before, after
