"""Fields brought to zero mean and unit deviation, as part of a model."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.names import Scheme

EPSILON = 1e-5
"""Added to every deviation: points where all samples agree stay finite (Dirichlet boundaries)."""


MARGIN = 0.1
"""Free on both sides of a box: models take the unit cube as periodic, a body's ends do not meet."""


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


class Moments:
    """Mean and deviation of fields that arrive in parts, at every point, in float64.

    Parts are merged by the update of Chan, Golub and LeVeque (1983).
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros((), dtype=torch.float64)
        self._squares = torch.zeros((), dtype=torch.float64)
        self.lowest = torch.full((), torch.inf, dtype=torch.float64)
        self.highest = -self.lowest

    @classmethod
    def of(cls, parts: Iterable[Float[Tensor, "_ *field"]]) -> "Moments":
        """Return the moments of all samples of some parts."""
        moments = cls()
        for part in parts:
            moments.add(part)
        return moments

    def add(self, part: Float[Tensor, "samples *field"]) -> None:
        """Take in more samples."""
        part = part.double()
        total = self.count + len(part)
        mean = part.mean(0)
        shift = mean - self.mean
        between = shift.square() * (self.count * len(part) / total)
        self._squares = self._squares + (part - mean).square().sum(0) + between
        self.mean = self.mean + shift * (len(part) / total)
        self.count = total
        flat = part.flatten(0, -2)
        self.lowest = torch.minimum(self.lowest, flat.amin(0))
        self.highest = torch.maximum(self.highest, flat.amax(0))

    @property
    def std(self) -> Tensor:
        """Return the deviation at every point, with the divisor n - 1."""
        return (self._squares / max(1, self.count - 1)).sqrt()

    def over_points(self) -> tuple[Float[Tensor, " channel"], Float[Tensor, " channel"]]:
        """Return mean and deviation of every channel over all points and samples."""
        n_points = self.mean[..., 0].numel()
        axes = tuple(range(self.mean.ndim - 1))
        mean = self.mean.mean(axes) if axes else self.mean
        spread = self.count * (self.mean - mean).square()
        squares = (self._squares + spread).sum(axes) if axes else self._squares
        return mean, (squares / max(1, self.count * n_points - 1)).sqrt()


def normalization(scheme: Scheme, moments: Moments) -> Normalization:
    """Return the normalisation of fields with these moments.

    `pointwise` has one statistic a point and channel, `channel` one a channel, `none` leaves
    values as they are (its buffers are scalars, so that any grid can be read). `box` brings the
    range of a channel into the unit interval.
    """
    if scheme == "none":
        return Normalization(torch.zeros(()), torch.ones(()) - EPSILON)
    if scheme == "pointwise":
        return Normalization(moments.mean, moments.std)
    if scheme == "box":
        extent = moments.highest - moments.lowest
        extent = torch.where(extent > 0, extent, 1.0) * (1 + 2 * MARGIN)
        return Normalization(moments.lowest - MARGIN * extent, extent - EPSILON)
    return Normalization(*moments.over_points())


def fit_normalization(
    scheme: Scheme, values: Float[Tensor, "samples *space channel"]
) -> Normalization:
    """Return the normalisation of training fields that are all in memory."""
    return normalization(scheme, Moments.of([values]))
