"""Fields brought to zero mean and unit deviation, as part of a model."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.training.config import Scheme

EPSILON = 1e-5
"""Added to every deviation: points where all samples agree stay finite (Dirichlet boundaries)."""


class Normalization(nn.Module):
    """x -> (x - mean) / (std + 1e-5), with the statistics of the training samples.

    Mean and deviation are buffers: they travel with the weights, and a model that was loaded
    predicts in physical units without the data it was trained on.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Float[Tensor, "..."], std: Float[Tensor, "..."]) -> None:
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("std", std.float() + EPSILON)

    def encode(self, values: Float[Tensor, "batch *field"]) -> Float[Tensor, "batch *field"]:
        """Return normalised values."""
        return (values - self.mean) / self.std

    def decode(self, values: Float[Tensor, "batch *field"]) -> Float[Tensor, "batch *field"]:
        """Return physical values."""
        return values * self.std + self.mean


def fit_normalization(
    scheme: Scheme, values: Float[Tensor, "samples *space channel"]
) -> Normalization:
    """Return the normalisation of training fields.

    `pointwise` has one statistic a point and channel, `channel` one a channel, `none` leaves
    values as they are (its buffers are scalars, so that any grid can be read).
    """
    if scheme == "none":
        return Normalization(torch.zeros(()), torch.ones(()) - EPSILON)
    axes = (0,) if scheme == "pointwise" else tuple(range(values.ndim - 1))
    values = values.double()
    return Normalization(values.mean(axes), values.std(axes))
