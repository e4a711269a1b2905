"""A learned deformation of space, which brings a body of any shape to the unit cube."""

from math import pi

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.precision import in_float32


class Deformation(nn.Module):
    """x -> x (1 + d(x, code)), with a perceptron d, after geo-FNO (Li et al., 2023).

    The perceptron reads a point's position, its angles and its distance from the point whose
    coordinates are all `center`, sines and cosines of these at octaves of the frequency pi, and
    the code of the shape if there is one: one vector for all points of a sample.
    """

    octaves: Tensor

    def __init__(self, n_dims: int, n_code: int, width: int, center: float) -> None:
        super().__init__()
        self.center = center
        n_described = 2 * n_dims
        n_octaves = width // n_described
        self.lift = nn.Linear(n_described, width)
        self.code = nn.Linear(n_code, width) if n_code > 0 else None
        n_features = (width if n_code > 0 else 0) + width + 2 * n_octaves * n_described
        hidden = 4 * width
        self.perceptron = nn.Sequential(
            nn.Linear(n_features, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, n_dims),
        )
        self.register_buffer("octaves", 2.0 ** torch.arange(n_octaves), persistent=False)

    @in_float32
    def forward(
        self, positions: Float[Tensor, "batch point axis"], code: Float[Tensor, "batch code"]
    ) -> Float[Tensor, "batch point axis"]:
        """Return where every point goes."""
        described = self.describe(positions)
        waves = (pi * described.unsqueeze(-1) * self.octaves).flatten(2)
        features = [self.lift(described), torch.sin(waves), torch.cos(waves)]
        if self.code is not None:
            of_shape = self.code(code).unsqueeze(1)
            features.insert(0, of_shape.expand(-1, positions.shape[1], -1))
        return positions * (1 + self.perceptron(torch.cat(features, dim=-1)))

    def describe(
        self, positions: Float[Tensor, "batch point axis"]
    ) -> Float[Tensor, "batch point number"]:
        """Return position, angles and distance of every point.

        There is one angle for each pair of neighbouring axes: one in two dimensions.
        """
        offset = positions - self.center
        angles = torch.atan2(offset[..., 1:], offset[..., :-1])
        distance = torch.linalg.vector_norm(offset, dim=-1, keepdim=True)
        return torch.cat([positions, angles, distance], dim=-1)
