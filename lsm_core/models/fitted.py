"""What models have in common whose weights are computed from the samples, without training."""

from abc import abstractmethod
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.shapes import Inputs, Outputs

Matrix = Float[Tensor, "samples number"]
Pairs = Iterable[tuple[Float[Tensor, "_ *space input"], Float[Tensor, "_ *space output"]]]
"""Inputs and targets of the training samples, in parts."""


class FittedModel(nn.Module):
    """A classical model: its weights solve a problem of linear algebra on the training samples.

    It maps a whole problem at once, also one that steps through time.
    """

    @abstractmethod
    def fit(self, parts: Pairs) -> None:
        """Set the weights by the training samples, as they are after normalisation."""

    @abstractmethod
    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""


def stacked(
    parts: Pairs,
) -> tuple[Float[Tensor, "samples given"], Float[Tensor, "samples wanted"]]:
    """Return inputs and targets of all samples as rows, in float64; they have to fit in memory."""
    pairs = [(inputs.flatten(1).double(), targets.flatten(1).double()) for inputs, targets in parts]
    inputs, targets = (torch.cat(some) for some in zip(*pairs, strict=True))
    return inputs, targets


def assign(parameter: nn.Parameter, values: Tensor) -> None:
    """Set a parameter; where it has more entries than there are values, the rest is zero."""
    with torch.no_grad():
        parameter.zero_()
        parameter[tuple(slice(0, size) for size in values.shape)] = values.to(parameter)


def leave_one_out(
    kernel: Float[Tensor, "samples samples"], penalty: float, targets: Matrix
) -> tuple[float, Matrix]:
    """Return the error of predicting each sample from the others, and the weights of all.

    With G = (K + penalty I)^-1 the weights are G Y, and the residual of sample i, had it been left
    out, is (G Y)_i / G_ii (Rippa 1999): no sample beside those of training is looked at.
    """
    eye = torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device)
    inverse = torch.linalg.inv(kernel + penalty * eye)
    weights = inverse @ targets
    residual = weights / inverse.diagonal().unsqueeze(1)
    return float((residual.norm(dim=1) / targets.norm(dim=1).clamp_min(1e-30)).mean()), weights


def principal_directions(
    centred: Matrix, most: int
) -> tuple[Float[Tensor, "number mode"], Float[Tensor, "samples mode"]]:
    """Return the leading right singular vectors of centred rows, and the rows' coordinates."""
    values, vectors = torch.linalg.eigh(centred @ centred.T)
    kept = min(most, int((values > 1e-10 * values[-1]).sum()))
    scales = values[-kept:].flip(0).sqrt() if kept else values[:0]
    left = vectors[:, len(values) - kept :].flip(1)
    return centred.T @ left / scales, left * scales
