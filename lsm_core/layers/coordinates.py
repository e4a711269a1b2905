"""Coordinates of a grid on the unit cube, which the models append to their inputs."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.shapes import Field


def unit_coordinates(space: tuple[int, ...]) -> Float[Tensor, "*space axis"]:
    """Return the position of every grid point, from 0 to 1 inclusive along each axis.

    These are indices of points, not physical positions: the released code appends the same
    numbers whether the values stand on nodes, on cell centres or on a periodic grid.
    """
    axes = [torch.linspace(0, 1, n_points) for n_points in space]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


class AppendCoordinates(nn.Module):
    """Further channels of a field: the coordinates of its points."""

    coordinates: Tensor

    def __init__(self, space: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("coordinates", unit_coordinates(space), persistent=False)

    def forward(self, field: Field) -> Float[Tensor, "batch *space more"]:
        """Return the field with the coordinates after its channels."""
        coordinates = self.coordinates.expand(len(field), *self.coordinates.shape)
        return torch.cat([field, coordinates], dim=-1)
