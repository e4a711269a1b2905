"""Fields continued beyond their ends: to a size that can be halved and cut into patches."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lsm_core.layers.shapes import Field

Boundary = Literal["zero", "circular"]
"""What lies beyond the ends of a grid: zeros, or the other end of a periodic field."""


def padded_shape(space: tuple[int, ...], divisors: tuple[int, ...]) -> tuple[int, ...]:
    """Return the smallest shape that holds the grid and is divisible along each axis."""
    return tuple(size + -size % divisor for size, divisor in zip(space, divisors, strict=True))


def check_padding(space: tuple[int, ...], padded: tuple[int, ...], reason: str) -> None:
    """Raise a ValueError if padding, for the scales that the reason names, is most of the grid."""
    if any(2 * size < full for size, full in zip(space, padded, strict=True)):
        raise ValueError(
            f"a grid of {space} would be padded to {padded} for {reason}, more than twice its "
            "size; take fewer scales"
        )


def pad_to(
    field: Field, shape: tuple[int, ...], boundary: Boundary
) -> Float[Tensor, "batch *padded channel"]:
    """Return the field continued at the far end of each axis, by zeros or from its beginning."""
    for axis, size in enumerate(shape, start=1):
        missing = size - field.shape[axis]
        if missing == 0:
            continue
        if boundary == "zero":
            filling = field.new_zeros(*field.shape[:axis], missing, *field.shape[axis + 1 :])
        else:
            filling = field.narrow(axis, 0, missing)
        field = torch.cat([field, filling], dim=axis)
    return field


def crop_to(field: Float[Tensor, "batch *padded channel"], space: tuple[int, ...]) -> Field:
    """Return the first points of each axis.

    It cuts to a known size: cutting off the padding by a negative index returns nothing along
    an axis that was not padded.
    """
    for axis, size in enumerate(space, start=1):
        # Nothing to cut: a view of all of it would be filled and copied in the backward pass.
        if field.shape[axis] != size:
            field = field.narrow(axis, 0, size)
    return field


def wrap(field: Field) -> Float[Tensor, "batch *wider channel"]:
    """Return a periodic field with one more point at both ends of every axis."""
    for axis in range(1, field.ndim - 1):
        last = field.narrow(axis, field.shape[axis] - 1, 1)
        field = torch.cat([last, field, field.narrow(axis, 0, 1)], dim=axis)
    return field
