"""A pointwise perceptron whose wide hidden layer is never whole in memory.

    y = W2 gelu(W1 x + b1) + b2        at every point

Plain torch writes the hidden values of all points, and GELU's beside them, and keeps both for the
backward pass. Here they are computed a block of points at a time, so that they stay in the cache,
and again in the backward pass: 1.5 times as fast for 32 features, 128 hidden and 29,000 points. No
double backward.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

# Hidden values worked on at once: they are wide, and should stay in the cache.
_CHUNK = 1 << 19


def perceptron(
    features: Float[Tensor, "*points feature"],
    hidden_weight: Float[Tensor, "hidden feature"],
    hidden_bias: Float[Tensor, " hidden"],
    output_weight: Float[Tensor, "output hidden"],
    output_bias: Float[Tensor, " output"],
) -> Float[Tensor, "*points output"]:
    """Return the outputs of every point."""
    result: Tensor = _Perceptron.apply(
        features, hidden_weight, hidden_bias, output_weight, output_bias
    )
    return result


class _Perceptron(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
        output_weight: Tensor,
        output_bias: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(features, hidden_weight, hidden_bias, output_weight)
        result = features.new_empty(*features.shape[:-1], len(output_weight))
        for points, rows in _chunks(len(hidden_weight), features, result):
            hidden = functional.gelu(torch.addmm(hidden_bias, points, hidden_weight.T))
            torch.addmm(output_bias, hidden, output_weight.T, out=rows)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, hidden_weight, hidden_bias, output_weight = ctx.saved_tensors
        features_gradient = features.new_empty(features.shape)
        sums = [torch.zeros_like(value) for value in (hidden_weight, hidden_bias, output_weight)]
        tensors = features, gradient, features_gradient
        for points, outer, inner in _chunks(len(hidden_weight), *tensors):
            hidden = torch.addmm(hidden_bias, points, hidden_weight.T)
            sums[2].addmm_(outer.T, functional.gelu(hidden))
            slope = torch.ops.aten.gelu_backward(outer @ output_weight, hidden)
            sums[0].addmm_(slope.T, points)
            sums[1].add_(slope.sum(0))
            torch.mm(slope, hidden_weight, out=inner)
        return features_gradient, *sums, gradient.flatten(0, -2).sum(0)


def _chunks(n_hidden: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield matching blocks of points of several tensors."""
    n_points = max(1, _CHUNK // n_hidden)
    flat = [tensor.reshape(-1, tensor.shape[-1]) for tensor in tensors]
    return zip(*(tensor.split(n_points) for tensor in flat), strict=True)
