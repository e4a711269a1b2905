"""Convolutions that change the resolution of a field, and their layers with normalisation."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.by_dimension import (
    CONVOLUTION_LAYERS,
    TRANSPOSED_LAYERS,
    plain_convolution,
    transposed_convolution,
)
from lsm_core.layers.convolution import convolve
from lsm_core.layers.normalization import NORMALIZATIONS, NormalizationKind
from lsm_core.layers.padding import crop_to
from lsm_core.layers.shapes import Features, Field


class Convolution(nn.Module):
    """A convolution of odd width at every `stride`-th point, with zeros beyond the ends.

    An axis of n points becomes one of n / stride, rounded up.
    """

    def __init__(
        self,
        n_dims: int,
        n_inputs: int,
        n_outputs: int,
        *,
        kernel_size: int = 3,
        stride: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {kernel_size}")
        self.stride, self.padding = stride, kernel_size // 2
        layer = CONVOLUTION_LAYERS[n_dims]
        self.layer = layer(n_inputs, n_outputs, kernel_size=kernel_size, stride=stride, bias=bias)

    def forward(self, field: Field) -> Float[Tensor, "batch *result feature"]:
        """Return the convolved field."""
        return self.convolved(field, self.layer.weight, self.layer.bias)

    def convolved(
        self,
        field: Field,
        weight: Float[Tensor, "feature channel *kernel"],
        bias: Float[Tensor, " feature"] | None,
    ) -> Float[Tensor, "batch *result feature"]:
        """Return the convolution with other weights of the same shape."""
        if self.stride == 1 and self.padding == 1:
            return convolve(field, weight, bias)
        return plain_convolution(field, weight, bias, stride=self.stride, padding=self.padding)


class TransposedConvolution(nn.Module):
    """A 4-wide transposed convolution of stride 2: a field of twice as many points an axis."""

    def __init__(self, n_dims: int, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.layer = TRANSPOSED_LAYERS[n_dims](n_inputs, n_outputs, kernel_size=4, stride=2)

    def forward(self, field: Field) -> Float[Tensor, "batch *result feature"]:
        """Return the finer field."""
        weight, bias = self.layer.weight, self.layer.bias
        return transposed_convolution(field, weight, bias, stride=2, padding=1)


class LeakyConvolution(nn.Module):
    """A 3-wide convolution, then a normalisation and a leaky ReLU."""

    slope: ClassVar[float] = 0.1

    def __init__(
        self,
        n_dims: int,
        n_inputs: int,
        n_outputs: int,
        *,
        stride: int = 1,
        normalization: NormalizationKind = "batch",
    ) -> None:
        super().__init__()
        # A normalisation has its own shift, which makes a bias before it useless.
        bias = normalization == "none"
        self.convolution = Convolution(n_dims, n_inputs, n_outputs, stride=stride, bias=bias)
        self.normalization = NORMALIZATIONS[normalization](n_outputs)

    def forward(self, field: Field) -> Float[Tensor, "batch *result feature"]:
        """Return the features."""
        layer = self.convolution.layer
        kernel = self.normalization.folded_into(layer.weight, layer.bias)
        features = self.normalization(self.convolution.convolved(field, *kernel))
        return functional.leaky_relu(features, self.slope)


class LeakyTransposedConvolution(nn.Module):
    """A transposed convolution, then a leaky ReLU."""

    def __init__(self, n_dims: int, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.convolution = TransposedConvolution(n_dims, n_inputs, n_outputs)

    def forward(
        self, field: Float[Tensor, "batch *half channel"], space: tuple[int, ...]
    ) -> Features:
        """Return features on a finer grid: twice as many points, or one less along an axis."""
        features = crop_to(self.convolution(field), space)
        return functional.leaky_relu(features, LeakyConvolution.slope)
