"""Two convolutions with normalisation and activation: the local part of the multiscale network."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.by_dimension import Pooling, convolution_layer
from lsm_core.layers.choices import check_choice
from lsm_core.layers.kernels.convolution import convolve, convolve_prepared
from lsm_core.layers.normalization import NORMALIZATIONS, NormalizationKind
from lsm_core.layers.padding import Boundary

Features = Float[Tensor, "batch *space feature"]

ActivationKind = Literal["relu", "gelu"]

_ACTIVATIONS: dict[ActivationKind, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
}


@dataclass(frozen=True, kw_only=True)
class ConvolutionConfig:
    """What surrounds the convolutions; the defaults are those of the released code.

    For smooth periodic problems GELU, a circular boundary and no normalisation are better: the
    noise of batch statistics, zeros beyond a periodic edge and the kink of ReLU each cost
    accuracy there.
    """

    normalization: NormalizationKind = "batch"
    activation: ActivationKind = "relu"
    pooling: Pooling = "max"
    boundary: Boundary = "zero"

    def __post_init__(self) -> None:
        check_choice("normalization", self.normalization, NormalizationKind)
        check_choice("activation", self.activation, ActivationKind)
        check_choice("pooling", self.pooling, Pooling)
        check_choice("boundary", self.boundary, Boundary)


SMOOTH = ConvolutionConfig(
    normalization="none", activation="gelu", pooling="average", boundary="circular"
)
"""Convolutions for smooth periodic problems."""


class ConvolutionLayer(nn.Module):
    """A 3-wide convolution, then a normalisation and an activation."""

    def __init__(
        self, config: ConvolutionConfig, n_dims: int, n_inputs: int, n_outputs: int
    ) -> None:
        super().__init__()
        self.activation = _ACTIVATIONS[config.activation]
        plain = config.normalization == "none"
        # A normalisation has its own shift, which makes a bias before it useless.
        self.convolution = convolution_layer(n_dims, n_inputs, n_outputs, bias=plain)
        if plain:
            # Without normalisation the size of the features must not shrink from layer to layer.
            nn.init.kaiming_normal_(self.convolution.weight, nonlinearity="relu")
        self.normalization = NORMALIZATIONS[config.normalization](n_outputs)

    def kernel(self) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias of the convolution, with what can be folded into them."""
        return self.normalization.folded_into(self.convolution.weight, self.convolution.bias)

    def forward(self, convolved: Features) -> Features:
        """Return what follows the convolution with that kernel."""
        return self.activation(self.normalization(convolved))

    def function(self) -> Callable[..., Tensor]:
        """Return `forward` as a function of features and parameters, which can be called again."""
        normalize = self.normalization.function()
        return lambda features, *parameters: self.activation(normalize(features, *parameters))


class ConvolutionBlock(nn.Module):
    """Two convolution layers, one after the other.

    What is linear and comes before it can be merged with its first convolution: a map `lift` of
    the channels is, and whoever has computed the first convolution continues with `finish`.
    """

    def __init__(
        self, config: ConvolutionConfig, n_dims: int, n_inputs: int, n_hidden: int, n_outputs: int
    ) -> None:
        super().__init__()
        self.boundary = config.boundary
        self.first = ConvolutionLayer(config, n_dims, n_inputs, n_hidden)
        self.second = ConvolutionLayer(config, n_dims, n_hidden, n_outputs)

    def forward(
        self, field: Float[Tensor, "batch *space channel"], lift: nn.Linear | None = None
    ) -> Features:
        """Return the features after both layers, of the field lifted by a map if one is given.

        The last channel of a field to be lifted is 1, and 0 in padding: it carries the bias.
        """
        weight, bias = self.first.kernel()
        if lift is not None:
            matrix = torch.cat([lift.weight, lift.bias.unsqueeze(1)], dim=1)
            weight = torch.einsum("fw...,wi->fi...", weight, matrix)
        return self.finish(convolve(field, weight, bias, self.boundary))

    def finish(self, convolved: Float[Tensor, "batch *space hidden"]) -> Features:
        """Return the features after both layers, given the result of the first convolution."""
        inputs = (convolved, *self.first.normalization.parameters_in_use())
        kernel = self.second.kernel()
        return self.second(convolve_prepared(self.first.function(), inputs, *kernel, self.boundary))
