"""Attention without softmax, at a cost that is linear in the number of points."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

Points = Float[Tensor, "batch point channel"]

# Size of the random part and of the diagonal of the first query, key and value matrices.
_GAIN = 1e-2


class GalerkinAttention(nn.Module):
    """Galerkin-type attention of several heads (Cao, NeurIPS 2021).

    With n points, and the position of each in front of its query, key and value in every head,

        z = Q (K^T V) / n,    K and V normalised over the channels of a head.

    K^T V / n holds the integrals over the domain of the products of two functions each, and the
    rows of z are combinations of the queries with these as coefficients: a Petrov-Galerkin
    projection. Nothing is of the size n x n.
    """

    def __init__(self, width: int, n_heads: int, n_dims: int) -> None:
        super().__init__()
        if n_heads < 1 or width % n_heads:
            raise ValueError(f"{width} channels cannot be shared out between {n_heads} heads")
        self.n_heads = n_heads
        self.query = _nearly_diagonal(width)
        self.key = _nearly_diagonal(width)
        self.value = _nearly_diagonal(width)
        self.key_norm = HeadNorm(n_heads, width // n_heads)
        self.value_norm = HeadNorm(n_heads, width // n_heads)
        self.output = nn.Linear(width + n_heads * n_dims, width)

    def forward(self, points: Points, positions: Float[Tensor, "point axis"]) -> Points:
        """Return the attended values of every point."""
        query = self._by_head(self.query(points))
        key = self.key_norm(self._by_head(self.key(points)))
        value = self.value_norm(self._by_head(self.value(points)))
        positions = positions.expand(*query.shape[:2], *positions.shape)
        query, key, value = (torch.cat([positions, part], dim=-1) for part in (query, key, value))
        attended = query @ (key.mT @ value / points.shape[1])  # (batch, head, point, axis channel)
        return self.output(attended.transpose(1, 2).flatten(2))

    def _by_head(self, points: Points) -> Float[Tensor, "batch head point head_width"]:
        return points.unflatten(2, (self.n_heads, -1)).transpose(1, 2)


class HeadNorm(nn.Module):
    """Normalisation over the channels of a head, with scales and shifts of each head."""

    def __init__(self, n_heads: int, head_width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_heads, 1, head_width))
        self.bias = nn.Parameter(torch.zeros(n_heads, 1, head_width))

    def forward(
        self, values: Float[Tensor, "batch head point channel"]
    ) -> Float[Tensor, "batch head point channel"]:
        """Return the normalised values."""
        normalized = functional.layer_norm(values, values.shape[-1:])
        return torch.addcmul(self.bias, normalized, self.weight)


def _nearly_diagonal(width: int) -> nn.Linear:
    """Return a projection that begins as a small multiple of the identity, with small noise."""
    projection = nn.Linear(width, width)
    with torch.no_grad():
        nn.init.xavier_uniform_(projection.weight, gain=_GAIN)
        projection.weight.diagonal().add_(_GAIN)
        projection.bias.zero_()
    return projection
