"""The pointwise network that turns features into the fields that are asked for."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

# Hidden values worked on at once: they are wide, and should stay in the cache.
_CHUNK = 1 << 19


class Head(nn.Module):
    """A pointwise perceptron with one hidden layer and GELU.

    The hidden layer is wider than anything before it, so it is computed a block of points at a
    time, and again in the backward pass.
    """

    def __init__(self, n_features: int, n_hidden: int, n_outputs: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_features, n_hidden)
        self.output = nn.Linear(n_hidden, n_outputs)

    def forward(
        self, features: Float[Tensor, "*points feature"], before: nn.Linear | None = None
    ) -> Float[Tensor, "*points output"]:
        """Return the outputs of every point; a linear map `before` is merged into the first."""
        hidden: tuple[Tensor, Tensor] = (self.hidden.weight, self.hidden.bias)
        if before is not None:
            weight, bias = hidden
            hidden = (weight @ before.weight, weight @ before.bias + bias)
        result: Tensor = _Perceptron.apply(features, *hidden, self.output.weight, self.output.bias)
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
    n_points = max(1, _CHUNK // n_hidden) if tensors[0].device.type == "cpu" else 1 << 62
    flat = [tensor.reshape(-1, tensor.shape[-1]) for tensor in tensors]
    return zip(*(tensor.split(n_points) for tensor in flat), strict=True)
