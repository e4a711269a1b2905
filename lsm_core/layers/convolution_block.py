"""Two convolutions with normalisation and activation: the local part of the multiscale network."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.boundary import Boundary
from lsm_core.layers.by_dimension import Pooling, convolution_layer
from lsm_core.layers.choices import check_choice
from lsm_core.layers.convolution import convolve, convolve_prepared
from lsm_core.layers.normalization import NORMALIZATIONS, NormalizationKind

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

    def activated(self) -> tuple[Callable[..., Tensor], tuple[Tensor | None, ...]]:
        """Return what follows the convolution: a function of features and parameters, and those.

        The function may be called again for the backward pass; only its first call counts for
        the running statistics.
        """
        normalize = self.normalization.function()

        def activate(features: Tensor, *parameters: Tensor | None) -> Tensor:
            return self.activation(normalize(features, *parameters))

        return activate, self.normalization.parameters_in_use()


class ConvolutionBlock(nn.Module):
    """Two convolution layers, one after the other.

    Whoever has merged the first convolution with what comes before it continues with `finish`.
    """

    def __init__(
        self, config: ConvolutionConfig, n_dims: int, n_inputs: int, n_hidden: int, n_outputs: int
    ) -> None:
        super().__init__()
        self.boundary = config.boundary
        self.first = ConvolutionLayer(config, n_dims, n_inputs, n_hidden)
        self.second = ConvolutionLayer(config, n_dims, n_hidden, n_outputs)

    def forward(self, field: Float[Tensor, "batch *space channel"]) -> Features:
        """Return the features after both layers."""
        return self.finish(convolve(field, *self.first.kernel(), self.boundary))

    def finish(self, convolved: Float[Tensor, "batch *space hidden"]) -> Features:
        """Return the features after both layers, given the result of the first convolution."""
        activate, parameters = self.first.activated()
        inputs = (convolved, *parameters)
        features = convolve_prepared(activate, inputs, *self.second.kernel(), self.boundary)
        activate, parameters = self.second.activated()
        return activate(features, *parameters)
