"""Doubling the resolution of a field, alone and followed by a convolution."""

from math import prod

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from lsm_core.layers.by_dimension import interpolate
from lsm_core.layers.kernels.convolution import convolve_prepared
from lsm_core.layers.padding import Boundary, wrap


def upsample(
    field: Float[Tensor, "batch *coarse channel"], boundary: Boundary
) -> Float[Tensor, "batch *fine channel"]:
    """Return a field of twice as many points an axis, by linear interpolation.

    With a zero boundary the first and last points of both grids coincide, as in the released
    code. With a circular one each point is the middle of the cell that pooling made it from.
    """
    if boundary == "zero":
        return interpolate(field, align_corners=True)
    fine = interpolate(wrap(field), align_corners=False)
    for axis in range(1, field.ndim - 1):
        fine = fine.narrow(axis, 2, fine.shape[axis] - 4)
    return fine.contiguous()


def convolve_upsampled(
    field: Float[Tensor, "batch *coarse channel"],
    weight: Float[Tensor, "feature channel *kernel"],
    boundary: Boundary,
) -> Float[Tensor, "batch *fine feature"]:
    """Return the 3-wide convolution of the upsampled field.

    Channels can be mixed at low resolution, once for each tap of the kernel, and the results be
    upsampled and shifted as they are summed: a quarter of the products in two dimensions, an
    eighth in three. The sums are products with full matrices along each axis, so that this pays
    only while the axes are short next to the number of channels.
    """
    if _low_resolution_is_cheaper(tuple(field.shape), len(weight)):
        return _mix_then_upsample(field, weight, boundary)

    def fine(coarse: Tensor) -> Tensor:
        return upsample(coarse, boundary)

    return convolve_prepared(fine, (field,), weight, None, boundary)


def _low_resolution_is_cheaper(shape: tuple[int, ...], n_features: int) -> bool:
    """Compare the numbers of products, with an allowance for the copies between them."""
    _, *coarse, n_channels = shape
    n_dims = len(coarse)
    direct = 3**n_dims * prod(coarse) * 2**n_dims * n_channels * n_features
    mixing = direct // 2**n_dims
    summing = sum(
        prod(3 * n for n in coarse[: axis + 1]) * prod(2 * n for n in coarse[axis:]) * n_features
        for axis in range(n_dims)
    )
    return mixing + summing < 0.7 * direct


def _mix_then_upsample(field: Tensor, weight: Tensor, boundary: Boundary) -> Tensor:
    batch, *coarse, n_channels = field.shape
    n_features, n_dims = len(weight), len(coarse)
    mixing = weight.movedim((0, 1), (-1, 0)).reshape(n_channels, -1)  # (channel, taps feature)
    mixed = field.flatten(0, -2) @ mixing
    mixed = mixed.view(batch, *coarse, *[3] * n_dims, n_features)
    # Each tap axis before the axis of space that it shifts: (batch, 3, n, 3, n, ..., feature).
    pairs = [axis for i in range(1, n_dims + 1) for axis in (i + n_dims, i)]
    result = mixed.permute(0, *pairs, 2 * n_dims + 1).contiguous()
    for axis in reversed(range(n_dims)):
        leading = batch * prod(3 * n for n in coarse[:axis])
        matrix = _shifted_interpolation(coarse[axis], boundary).to(field)
        columns = result.view(leading, 3 * coarse[axis], -1)
        result = torch.bmm(matrix.expand(leading, -1, -1), columns)
    return result.view(batch, *(2 * n for n in coarse), n_features)


def _shifted_interpolation(size: int, boundary: Boundary) -> Float[Tensor, "{2*size} {3*size}"]:
    """Return the matrix that sums the three taps of a kernel along one axis.

    Row f holds, for each tap, the weights that interpolate at the fine point f - 1, f or f + 1.
    """
    fine = upsample(torch.eye(size, dtype=torch.float64).unsqueeze(0), boundary).squeeze(0)
    if boundary == "circular":
        around = torch.cat([fine[-1:], fine, fine[:1]])
    else:
        around = functional.pad(fine, (0, 0, 1, 1))
    return torch.cat([around[tap : tap + 2 * size] for tap in range(3)], dim=1)
