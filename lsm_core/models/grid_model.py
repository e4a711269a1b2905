"""What models on a regular grid have around their layers: coordinates, a lift and a head."""

from torch import nn

from lsm_core.layers.coordinates import AppendCoordinates
from lsm_core.layers.padding import crop_to, pad_to
from lsm_core.layers.shapes import Features, Field, Inputs, Outputs
from lsm_core.problems.shape import ProblemShape


class GridModel(nn.Module):
    """Inputs and coordinates lifted to features, layers, and a head that makes outputs of them.

    The layers work on a grid that is continued by zeros to the shape `padded`. A model adds its
    `layers`, or replaces `mapped`, and its `head`.
    """

    layers: nn.Module
    head: nn.Module

    def __init__(
        self, shape: ProblemShape, n_features: int, padded: tuple[int, ...] | None = None
    ) -> None:
        super().__init__()
        self.space, self.padded = shape.space, padded or shape.space
        self.with_coordinates = AppendCoordinates(shape.space)
        self.lift = nn.Linear(shape.n_inputs + shape.n_dims, n_features)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        features = pad_to(self.lift(self.with_coordinates(field)), self.padded, "zero")
        return self.head(crop_to(self.mapped(features), self.space))

    def mapped(self, features: Field) -> Features:
        """Return the features after all layers."""
        return self.layers(features)
