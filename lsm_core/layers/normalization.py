"""Normalisations of the channels of a field, as functions that can be computed again."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lsm_core.layers.ranks import n_ranks, summed

NormalizationKind = Literal["batch", "instance", "none"]


class NoNormalization(nn.Module):
    """Leaves the features as they are; what the other normalisations share."""

    def folded_into(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the convolution before it, with as much of this folded in as is possible."""
        return weight, bias

    def function(self) -> Callable[..., Tensor]:
        """Return the normalisation of what the folded convolution gives.

        It takes the features and the parameters in use. Only the first call may change a state.
        """
        return lambda features: features

    def parameters_in_use(self) -> tuple[Tensor, ...]:
        """Return the tensors that the function takes besides the features."""
        return ()


class BatchNormalization(NoNormalization):
    """Normalisation by the statistics of the batch, or by their running mean in eval mode."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, n_channels: int, epsilon: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.epsilon, self.momentum = epsilon, momentum
        self.weight = nn.Parameter(torch.ones(n_channels))
        self.bias = nn.Parameter(torch.zeros(n_channels))
        self.register_buffer("running_mean", torch.zeros(n_channels))
        self.register_buffer("running_var", torch.ones(n_channels))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def folded_into(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the convolution with the running statistics folded in, in eval mode."""
        if self.training:
            return weight, bias
        scale = self.weight * torch.rsqrt(self.running_var + self.epsilon)
        shift = self.bias - self.running_mean * scale
        return weight * scale.reshape(-1, *[1] * (weight.ndim - 1)), shift

    def function(self) -> Callable[..., Tensor]:
        """Return the normalisation; its first call updates the running statistics."""
        if not self.training:
            return super().function()
        first_call = True
        statistics: tuple[Tensor, Tensor] | None = None

        def normalize(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            nonlocal first_call, statistics
            rows = features.flatten(0, -2)
            if statistics is not None:
                result: Tensor = _KnownStatistics.apply(rows, weight, bias, *statistics)
                return result.reshape(features.shape)
            if len(rows) == 1 and n_ranks() == 1:
                raise ValueError("batch normalisation in training needs more than one point, got 1")
            running_mean = self.running_mean if first_call else None
            running_var = self.running_var if first_call else None
            if first_call:
                self.num_batches_tracked += 1
            first_call = False
            if n_ranks() > 1:
                mean, variance = self._statistics_of_all_ranks(rows, running_mean, running_var)
                scale = weight * torch.rsqrt(variance + self.epsilon)
                return ((rows - mean) * scale + bias).reshape(features.shape)
            result, *found = torch.native_batch_norm(
                rows, weight, bias, running_mean, running_var, True, self.momentum, self.epsilon
            )
            statistics = found[0].detach(), found[1].detach()
            return result.reshape(features.shape)

        return normalize

    def _statistics_of_all_ranks(
        self, rows: Tensor, running_mean: Tensor | None, running_var: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the rows of all ranks, and update the running ones."""
        count = summed(rows.new_tensor([len(rows)]))
        mean = summed(rows.sum(0)) / count
        variance = summed((rows - mean).square().sum(0)) / count
        if running_mean is not None and running_var is not None:
            unbiased = variance.detach() * count / (count - 1)
            running_mean.lerp_(mean.detach(), self.momentum)
            running_var.lerp_(unbiased, self.momentum)
        return mean, variance

    def parameters_in_use(self) -> tuple[Tensor, ...]:
        """Return scale and shift, unless they are folded into the convolution."""
        return (self.weight, self.bias) if self.training else ()


class _KnownStatistics(torch.autograd.Function):
    """Batch normalisation computed again: the statistics are there, one pass over the rows is left.

    The gradient is that of the normalisation, through the statistics too.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        inverse_deviation: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(rows, weight, mean, inverse_deviation)
        scale = weight * inverse_deviation
        return torch.addcmul(bias - mean * scale, rows, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, mean, inverse_deviation = ctx.saved_tensors
        # The last number but one would guard a division; the statistics at hand contain it.
        gradients = torch.ops.aten.native_batch_norm_backward(
            gradient, rows, weight, None, None, mean, inverse_deviation, True, 0.0, [True] * 3
        )
        return *gradients, None, None


class InstanceNormalization(NoNormalization):
    """Normalisation of each channel of each sample over space, with learned scale and shift."""

    def __init__(self, n_channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(n_channels))
        self.bias = nn.Parameter(torch.zeros(n_channels))

    def function(self) -> Callable[..., Tensor]:
        """Return the normalisation."""

        def normalize(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            points = features.flatten(1, -2)
            variance, mean = torch.var_mean(points, dim=1, keepdim=True, correction=0)
            scale = weight * torch.rsqrt(variance + self.epsilon)
            return ((points - mean) * scale + bias).reshape(features.shape)

        return normalize

    def parameters_in_use(self) -> tuple[Tensor, ...]:
        """Return scale and shift."""
        return self.weight, self.bias


NORMALIZATIONS: dict[NormalizationKind, Callable[[int], NoNormalization]] = {
    "batch": BatchNormalization,
    "instance": InstanceNormalization,
    "none": lambda n_channels: NoNormalization(),
}
