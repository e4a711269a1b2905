"""Normalisations of the channels of a field, as functions that can be computed again."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from lsm_core.layers.kernels.batch_normalization import normalize_again
from lsm_core.layers.precision import in_float32
from lsm_core.layers.rank_statistics import (
    SharedStatistics,
    normalize_by_all_ranks,
    statistics_of_all_ranks,
)
from lsm_core.layers.ranks import n_ranks
from lsm_core.layers.shapes import Field

NormalizationKind = Literal["batch", "instance", "none"]


class NoNormalization(nn.Module):
    """Leaves the features as they are; what the other normalisations share."""

    def forward(self, features: Field) -> Field:
        """Return the normalisation of what the folded convolution gives."""
        return self.function()(features, *self.parameters_in_use())

    def folded_into(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the convolution before it, with as much of this folded in as is possible."""
        return weight, bias

    def function(self) -> Callable[..., Tensor]:
        """Return the normalisation as a function of features and of the parameters in use.

        It can be called again, to the same effect; only its first call may change a state.
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
        return _BatchStatistics(self) if self.training else super().function()

    def parameters_in_use(self) -> tuple[Tensor, ...]:
        """Return scale and shift, unless they are folded into the convolution."""
        return (self.weight, self.bias) if self.training else ()


class _BatchStatistics:
    """The normalisation of one batch, which the backward pass may compute again.

    The first call finds the statistics of the batch, over all ranks, and counts it among the
    running ones; later calls know them.
    """

    def __init__(self, layer: BatchNormalization) -> None:
        self.layer = layer
        self.is_counted = False
        self.found: tuple[Tensor, Tensor] | None = None
        self.shared: SharedStatistics | None = None

    def __call__(self, features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        rows = features.flatten(0, -2)
        if self.found is not None:
            return normalize_again(rows, weight, bias, *self.found).reshape(features.shape)
        if len(rows) == 1 and n_ranks() == 1:
            raise ValueError("batch normalisation in training needs more than one point, got 1")
        if n_ranks() > 1:
            self.shared = self.shared or self._of_all_ranks(rows)
            result = normalize_by_all_ranks(rows, weight, bias, self.shared, self.layer.epsilon)
            return result.reshape(features.shape)
        momentum, epsilon = self.layer.momentum, self.layer.epsilon
        running_mean, running_variance = self._running_statistics() or (None, None)
        result, mean, inverse_deviation = torch.native_batch_norm(
            rows, weight, bias, running_mean, running_variance, True, momentum, epsilon
        )
        self.found = mean.detach(), inverse_deviation.detach()
        return result.reshape(features.shape)

    def _running_statistics(self) -> tuple[Tensor, Tensor] | None:
        """Count the batch and return the running mean and variance to update, the first time."""
        if self.is_counted:
            return None
        self.is_counted = True
        self.layer.num_batches_tracked += 1
        return self.layer.running_mean, self.layer.running_var

    def _of_all_ranks(self, rows: Tensor) -> SharedStatistics:
        """Return the statistics of the rows of all ranks, and update the running ones."""
        shared = statistics_of_all_ranks(rows)
        running = self._running_statistics()
        if running is not None:
            running_mean, running_variance = running
            unbiased = shared.variance * shared.n_rows / (shared.n_rows - 1)
            running_mean.lerp_(shared.mean, self.layer.momentum)
            running_variance.lerp_(unbiased, self.layer.momentum)
        return shared


class InstanceNormalization(NoNormalization):
    """Normalisation of each channel of each sample over space, with learned scale and shift."""

    def __init__(self, n_channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(n_channels))
        self.bias = nn.Parameter(torch.zeros(n_channels))

    def function(self) -> Callable[..., Tensor]:
        """Return the normalisation."""
        return self._normalized

    @in_float32
    def _normalized(self, features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        points = features.flatten(1, -2)
        variance, mean = torch.var_mean(points, dim=1, keepdim=True, correction=0)
        scale = weight * torch.rsqrt(variance + self.epsilon)
        return ((points - mean) * scale + bias).reshape(features.shape)

    def parameters_in_use(self) -> tuple[Tensor, ...]:
        """Return scale and shift."""
        return self.weight, self.bias


NORMALIZATIONS: dict[NormalizationKind, Callable[[int], NoNormalization]] = {
    "batch": BatchNormalization,
    "instance": InstanceNormalization,
    "none": lambda n_channels: NoNormalization(),
}
