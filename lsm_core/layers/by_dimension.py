"""The operations for which torch has one function a dimension: the only table from 1, 2, 3 to them.

Everywhere else a field is `(batch, *space, channel)`, channels last in memory too: the matrix
products over channels then need no copy, and neither do the convolutions below, which see it
through a permuted view.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.shapes import Field

Pooling = Literal["max", "average"]

CONVOLUTION_LAYERS: dict[int, type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d]] = {
    1: nn.Conv1d,
    2: nn.Conv2d,
    3: nn.Conv3d,
}
"""Layers that hold the weights of a convolution."""
TRANSPOSED_LAYERS: dict[
    int, type[nn.ConvTranspose1d] | type[nn.ConvTranspose2d] | type[nn.ConvTranspose3d]
] = {
    1: nn.ConvTranspose1d,
    2: nn.ConvTranspose2d,
    3: nn.ConvTranspose3d,
}
"""Layers that hold the weights of a transposed convolution."""

_INTERPOLATIONS = {1: "linear", 2: "bilinear", 3: "trilinear"}
# Torch's one-dimensional functions copy a channels-last field; as one row of a plane it stays.
_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
_POOLINGS: dict[tuple[Pooling, int], Callable[..., Tensor]] = {
    ("max", 2): functional.max_pool2d,
    ("max", 3): functional.max_pool3d,
    ("average", 2): functional.avg_pool2d,
    ("average", 3): functional.avg_pool3d,
}


def plain_convolution(
    field: Field,
    weight: Float[Tensor, "feature channel *kernel"],
    bias: Float[Tensor, " feature"] | None,
    *,
    stride: int = 1,
    padding: int,
) -> Float[Tensor, "batch *result feature"]:
    """Return the convolution, at every `stride`-th point, of a field continued by zeros.

    There are `padding` zeros at each end.
    """
    image, weight, strides, paddings = _as_images(field, weight, stride, padding)
    result = _CONVOLUTIONS[len(strides)](image, weight, bias, stride=strides, padding=paddings)
    return _as_field(result, field.ndim)


def transposed_convolution(
    field: Field,
    weight: Float[Tensor, "channel feature *kernel"],
    bias: Float[Tensor, " feature"] | None,
    *,
    stride: int,
    padding: int,
) -> Float[Tensor, "batch *result feature"]:
    """Return the transpose of `plain_convolution` with the same weight, plus a bias."""
    image, weight, strides, paddings = _as_images(field, weight, stride, padding)
    transposed = _TRANSPOSED_CONVOLUTIONS[len(strides)]
    return _as_field(transposed(image, weight, bias, stride=strides, padding=paddings), field.ndim)


def convolution_gradients(
    gradient: Float[Tensor, "batch *result feature"],
    field: Field,
    weight: Float[Tensor, "feature channel *kernel"],
    padding: int,
    wanted: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of `plain_convolution` with respect to field and weight, where wanted.

    The stride is 1.
    """
    image, image_weight, ones, paddings = _as_images(field, weight, 1, padding)
    zeros = [0] * len(paddings)
    # In order: bias sizes, stride, padding, dilation, transposed, output padding, groups.
    rest = (None, ones, paddings, ones, False, zeros, 1, [*wanted, False])
    of_image, of_weight, _ = torch.ops.aten.convolution_backward(
        _as_image(gradient), image, image_weight, *rest
    )
    return (
        _as_field(of_image, field.ndim) if wanted[0] else None,
        of_weight.reshape(weight.shape) if wanted[1] else None,
    )


def pool(
    field: Float[Tensor, "batch *fine channel"], pooling: Pooling
) -> Float[Tensor, "batch *coarse channel"]:
    """Return the largest or mean value of each cell of two points an axis."""
    image = _as_image(field)
    width = [1, 2] if field.ndim == 3 else [2] * (field.ndim - 2)
    return _as_field(_POOLINGS[pooling, len(width)](image, width), field.ndim)


def interpolate(
    field: Float[Tensor, "batch *coarse channel"], *, align_corners: bool
) -> Float[Tensor, "batch *fine channel"]:
    """Return a field of twice as many points an axis, by linear interpolation."""
    fine = functional.interpolate(
        field.movedim(-1, 1),
        scale_factor=2,
        mode=_INTERPOLATIONS[field.ndim - 2],
        align_corners=align_corners,
    )
    return fine.movedim(1, -1).contiguous()


def _as_images(
    field: Tensor, weight: Tensor, stride: int, padding: int
) -> tuple[Tensor, Tensor, list[int], list[int]]:
    """Return field, weight, strides and paddings of at least two axes, channels first."""
    if field.ndim == 3:
        return _as_image(field), weight.unsqueeze(2), [1, stride], [0, padding]
    n_dims = field.ndim - 2
    return _as_image(field), weight, [stride] * n_dims, [padding] * n_dims


def _as_image(field: Tensor) -> Tensor:
    """Return the view `(batch, channel, *space)` with at least two axes of space."""
    image = field.movedim(-1, 1)
    return image.unsqueeze(2) if field.ndim == 3 else image


def _as_field(image: Tensor, n_axes: int) -> Tensor:
    """Undo `_as_image` for a field of `n_axes`, batch and channel among them."""
    if n_axes == 3:
        image = image.squeeze(2)
    return image.movedim(1, -1).contiguous()
