"""Where the points of a field are, for models that work on grids, meshes and scattered points."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lsm_core.layers.choices import check_at_least, check_choices
from lsm_core.layers.coordinates import unit_coordinates
from lsm_core.layers.shapes import Field
from lsm_core.problems.shape import ProblemShape

PositionKind = Literal["index", "distances", "inputs"]


@dataclass(frozen=True, kw_only=True)
class PositionConfig:
    """How a model is told where a point is.

    `index`: by the place on its grid, from 0 to 1 along each axis. `distances`: by how far that
    place is from the nodes of a reference grid of `n_references` nodes an axis. `inputs`: by the
    first `n_coordinates` channels of the input, on meshes and scattered points; the channels after
    them, a code of the shape, are read if `reads_others` says so.
    """

    kind: PositionKind = "index"
    n_references: int = 8
    n_coordinates: int = 2
    reads_others: bool = True

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least(1, self, "n_coordinates")
        check_at_least(2, self, "n_references")


class Positions(nn.Module):
    """Takes a field apart: the positions of its points, and the values that are given there."""

    fixed: Tensor | None

    def __init__(self, config: PositionConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.kind, self.reads_others = config.kind, config.reads_others
        if config.kind == "inputs":
            if shape.n_inputs < config.n_coordinates:
                raise ValueError(
                    f"{shape.n_inputs} inputs cannot hold points with {config.n_coordinates} "
                    "coordinates"
                )
            self.n_channels = config.n_coordinates
            self.n_values = (shape.n_inputs - self.n_channels) * config.reads_others
            fixed = None
        else:
            fixed = unit_coordinates(shape.space)
            if config.kind == "distances":
                fixed = reference_distances(fixed, config.n_references)
            self.n_channels, self.n_values = fixed.shape[-1], shape.n_inputs
        self.register_buffer("fixed", fixed, persistent=False)

    def forward(
        self, field: Field
    ) -> tuple[Float[Tensor, "batch *space position"], Float[Tensor, "batch *space value"]]:
        """Return positions and values."""
        if self.fixed is None:
            last = self.n_channels + self.n_values
            return field[..., : self.n_channels], field[..., self.n_channels : last]
        return self.fixed.expand(len(field), *self.fixed.shape), field


def at_real_points(field: Field, is_there: Bool[Tensor, "batch *space"] | None) -> Field:
    """Return a field with plain numbers where a sample has no point: anything may stand there."""
    return field if is_there is None else torch.where(is_there.unsqueeze(-1), field, 0.5)


def reference_distances(
    positions: Float[Tensor, "*space axis"], n_references: int
) -> Float[Tensor, "*space node"]:
    """Return how far every position is from each node of a grid on the unit cube."""
    nodes = unit_coordinates((n_references,) * positions.shape[-1]).flatten(0, -2)
    return torch.linalg.vector_norm(positions.unsqueeze(-2) - nodes.to(positions), dim=-1)
