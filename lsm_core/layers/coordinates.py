"""Coordinates of a grid on the unit cube, which the models append to their inputs."""

import torch
from jaxtyping import Float
from torch import Tensor


def unit_coordinates(space: tuple[int, ...]) -> Float[Tensor, "*space axis"]:
    """Return the position of every grid point, from 0 to 1 inclusive along each axis.

    These are indices of points, not physical positions: the released code appends the same
    numbers whether the values stand on nodes, on cell centres or on a periodic grid.
    """
    axes = [torch.linspace(0, 1, n_points) for n_points in space]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def append_coordinates(
    field: Float[Tensor, "batch *space channel"], coordinates: Float[Tensor, "*space axis"]
) -> Float[Tensor, "batch *space more"]:
    """Return a field with the coordinates of its points as further channels."""
    return torch.cat([field, coordinates.expand(len(field), *coordinates.shape)], dim=-1)
