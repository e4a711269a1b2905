"""Values of a field between its grid points."""

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lsm_core.layers.constants import kept_on_device
from lsm_core.layers.precision import in_float32
from lsm_core.layers.shapes import Field


@in_float32
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
    left, right = neighbours(n_old, n_new, like=field)
    fraction = fractions(n_old, n_new, like=field).view(-1, *[1] * (field.ndim - 1 - axis))
    return torch.lerp(field.index_select(axis, left), field.index_select(axis, right), fraction)


@kept_on_device
def neighbours(n_old: int, n_new: int) -> Int64[np.ndarray, "2 new"]:
    """Return the numbers of the points on the left and right of each new one."""
    left = np.floor(_positions(n_old, n_new)).astype(np.int64)
    return np.stack([left, np.minimum(left + 1, n_old - 1)])


@kept_on_device
def fractions(n_old: int, n_new: int) -> Float64[np.ndarray, " new"]:
    """Return the distance of each new point from its left neighbour."""
    # In float64: on a long axis it must not lose its digits.
    positions = _positions(n_old, n_new)
    return positions - np.floor(positions)


def _positions(n_old: int, n_new: int) -> Float64[np.ndarray, " new"]:
    return np.linspace(0, n_old - 1, n_new)
