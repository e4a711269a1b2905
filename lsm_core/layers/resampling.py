"""Values of a field between its grid points."""

import torch
from jaxtyping import Float
from torch import Tensor

from lsm_core.layers.shapes import Field


def resample(field: Field, space: tuple[int, ...]) -> Float[Tensor, "batch *new_space channel"]:
    """Return the field on a grid of another size, by linear interpolation.

    The first and last points of both grids coincide. One point is spread over the whole axis.
    """
    # Axes that shrink first, so that the others have less to do.
    order = sorted(range(len(space)), key=lambda axis: space[axis] / field.shape[axis + 1])
    for axis in order:
        field = _resample_axis(field, axis + 1, space[axis])
    return field


def _resample_axis(field: Tensor, axis: int, n_new: int) -> Tensor:
    n_old = field.shape[axis]
    if n_new == n_old:
        return field
    # Float64: on a long axis the distance to the left neighbour must not lose its digits.
    positions = torch.linspace(0, n_old - 1, n_new, dtype=torch.float64, device=field.device)
    left = positions.floor().long()
    right = (left + 1).clamp(max=n_old - 1)
    fraction = (positions - left).to(field.dtype)
    fraction = fraction.reshape(-1, *[1] * (field.ndim - 1 - axis))
    return torch.lerp(field.index_select(axis, left), field.index_select(axis, right), fraction)
