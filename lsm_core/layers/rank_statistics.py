"""Batch normalisation by the statistics of all ranks, with one message forward and one back.

    y = (x - mean) / deviation * weight + bias        mean and deviation over the rows of all ranks

A layer's statistics depend on what the layer before it has normalised, and so do their gradients
the other way: two messages a layer are the fewest there can be. The first has the number of rows,
their sum and the sum of their squares; the second the sums of the gradient and of its product with
x - mean, through which the statistics depend on every row. Whoever computes y again needs no
message for it. No double backward.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable

Rows = Float[Tensor, "row channel"]
Channels = Float[Tensor, " channel"]


class SharedStatistics(NamedTuple):
    """Mean and variance of every channel over the rows of all ranks, and how many rows they are."""

    mean: Channels
    variance: Channels
    n_rows: Float[Tensor, ""]


def statistics_of_all_ranks(rows: Rows) -> SharedStatistics:
    """Return the statistics of the rows of all ranks. Collective, without a gradient.

    The sums are in float64, in which the square of a mean is exact enough to be taken away again.
    """
    with torch.no_grad():
        variance, mean = torch.var_mean(rows.float(), dim=0, correction=0)
        mean, variance = mean.double(), variance.double()
        message = torch.stack([mean, variance + mean.square(), torch.ones_like(mean)]) * len(rows)
        distributed.all_reduce(message)
        n_rows = message[2, 0]
        mean, square = message[0] / n_rows, message[1] / n_rows
        variance = (square - mean.square()).clamp(min=0)
    return SharedStatistics(mean.float(), variance.float(), n_rows.float())


def normalize_by_all_ranks(
    rows: Rows, weight: Channels, bias: Channels, known: SharedStatistics, epsilon: float
) -> Rows:
    """Return the rows normalised by known statistics. Its gradient is collective."""
    inverse_deviation = torch.rsqrt(known.variance + epsilon)
    result: Tensor = _Normalization.apply(
        rows, weight, bias, known.mean, inverse_deviation, known.n_rows
    )
    return result


class _Normalization(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        inverse_deviation: Tensor,
        n_rows: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(rows, weight, mean, inverse_deviation, n_rows)
        return torch.addcmul(bias, rows - mean, weight * inverse_deviation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, mean, inverse_deviation, n_rows = ctx.saved_tensors
        normalized = (rows - mean) * inverse_deviation
        own = torch.stack([gradient.sum(0), (gradient * normalized).sum(0)])
        total = own.clone()
        distributed.all_reduce(total)
        constant, slope = total / n_rows
        row_gradient = (gradient - constant - normalized * slope) * (weight * inverse_deviation)
        # Those of weight and bias are summed with all others.
        return row_gradient, own[1], own[0], None, None, None
