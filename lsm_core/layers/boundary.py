"""What lies beyond the ends of a grid: zeros, or the other end of a periodic field."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Boundary = Literal["zero", "circular"]


def wrap(field: Float[Tensor, "batch *space channel"]) -> Float[Tensor, "batch *wider channel"]:
    """Return a periodic field with one more point at both ends of every axis."""
    for axis in range(1, field.ndim - 1):
        last = field.narrow(axis, field.shape[axis] - 1, 1)
        field = torch.cat([last, field, field.narrow(axis, 0, 1)], dim=axis)
    return field
