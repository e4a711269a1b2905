"""Whether the edges of patches and the ends of a period can be seen in the errors of a model."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

REACH = 2
"""Points on each side of an edge that belong to it."""


def edge_ratio(
    predicted: Float[Tensor, "batch *space channel"],
    target: Float[Tensor, "batch *space channel"],
    patch_shape: tuple[int, ...],
) -> float:
    """Return the mean error within two points of an edge over that of the other points.

    Edges lie between the patches, and at the ends of each axis. One where nothing shows; infinite
    if the other points have no error.
    """
    errors = (predicted - target).abs().mean((0, -1))
    near = points_at_edges(tuple(errors.shape), patch_shape)
    return (errors[near].mean() / errors[~near].mean()).item()


def points_at_edges(space: tuple[int, ...], patch_shape: tuple[int, ...]) -> Bool[Tensor, "*space"]:
    """Return which points lie within two of an edge of patches, the ends of the grid among them."""
    near = torch.zeros(space, dtype=torch.bool)
    for axis, (size, width) in enumerate(zip(space, patch_shape, strict=True)):
        place = torch.arange(size)
        # An edge lies before the first point of a patch.
        at_edge = (place % width < REACH) | (place % width >= width - REACH)
        at_edge |= place >= size - REACH
        near |= at_edge.reshape(-1, *[1] * (len(space) - 1 - axis))
    return near
