"""Two convolutions with normalisation and activation: the local part of a multiscale network.

A block works at one scale; a merging block brings a coarser scale to a finer one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.by_dimension import CONVOLUTION_LAYERS, Pooling, pool
from lsm_core.layers.choices import check_choices
from lsm_core.layers.convolution import convolve
from lsm_core.layers.forms import suits_kernels
from lsm_core.layers.kernels.convolution import convolve_prepared
from lsm_core.layers.normalization import NORMALIZATIONS, NormalizationKind
from lsm_core.layers.padding import Boundary
from lsm_core.layers.shapes import Features, Field, Outputs
from lsm_core.layers.upsampling import convolve_upsampled, upsample

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
        check_choices(self)


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
        layer = CONVOLUTION_LAYERS[n_dims]
        self.convolution = layer(n_inputs, n_outputs, kernel_size=3, bias=plain)
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
    """Two convolution layers, one after the other."""

    def __init__(
        self, config: ConvolutionConfig, n_dims: int, n_inputs: int, n_hidden: int, n_outputs: int
    ) -> None:
        super().__init__()
        self.boundary = config.boundary
        self.first = ConvolutionLayer(config, n_dims, n_inputs, n_hidden)
        self.second = ConvolutionLayer(config, n_dims, n_hidden, n_outputs)

    def forward(self, field: Field) -> Features:
        """Return the features after both layers."""
        return self.finish(convolve(field, *self.first.kernel(), self.boundary))

    def lifted(self, field: Field, lift: nn.Linear) -> Features:
        """Return the features of a field whose channels a linear map lifts first.

        The map is merged with the convolution. The last channel of the field is 1, and 0 in
        padding: it carries the bias.
        """
        weight, bias = self.first.kernel()
        matrix = torch.cat([lift.weight, lift.bias.unsqueeze(1)], dim=1)
        weight = torch.einsum("fw...,wi->fi...", weight, matrix)
        return self.finish(convolve(field, weight, bias, self.boundary))

    def finish(self, convolved: Float[Tensor, "batch *space hidden"]) -> Features:
        """Return the features after both layers, given the result of the first convolution."""
        kernel = self.second.kernel()
        if not suits_kernels(convolved):
            return self.second(convolve(self.first(convolved), *kernel, self.boundary))
        inputs = (convolved, *self.first.normalization.parameters_in_use())
        return self.second(convolve_prepared(self.first.function(), inputs, *kernel, self.boundary))


class MergingBlock(nn.Module):
    """Merges a coarser scale into a finer one: upsampling, then two convolutions of both."""

    def __init__(
        self, config: ConvolutionConfig, n_dims: int, n_fine: int, n_coarse: int, n_outputs: int
    ) -> None:
        super().__init__()
        self.boundary, self.n_fine = config.boundary, n_fine
        joined = n_fine + n_coarse
        self.block = ConvolutionBlock(config, n_dims, joined, joined // 2, n_outputs)

    def forward(self, fine: Field, coarse: Float[Tensor, "batch *half feature"]) -> Outputs:
        """Return the merged features, at the finer resolution.

        The kernels convolve both parts apart, instead of one long field.
        """
        if not suits_kernels(fine):
            return self.block(torch.cat([fine, upsample(coarse, self.boundary)], dim=-1))
        weight, bias = self.block.first.kernel()
        fine_weight, coarse_weight = weight.split([self.n_fine, coarse.shape[-1]], dim=1)
        convolved = convolve(fine, fine_weight, bias, self.boundary)
        return self.block.finish(
            convolved + convolve_upsampled(coarse, coarse_weight, self.boundary)
        )


class DownwardBlocks(nn.ModuleList):
    """Convolution blocks from scale to scale, each at half the resolution of the one before."""

    def __init__(self, config: ConvolutionConfig, n_dims: int, widths: tuple[int, ...]) -> None:
        super().__init__(
            ConvolutionBlock(config, n_dims, fine, coarse, coarse)
            for fine, coarse in pairwise(widths)
        )
        self.pooling = config.pooling

    def forward(self, finest: Tensor) -> list[Tensor]:
        """Return the features at every scale, finest first."""
        scales = [finest]
        for block in self:
            scales.append(block(pool(scales[-1], self.pooling)))
        return scales


class UpwardBlocks(nn.ModuleList):
    """Merging blocks from scale to scale, coarsest first."""

    def __init__(self, config: ConvolutionConfig, n_dims: int, widths: tuple[int, ...]) -> None:
        super().__init__(
            MergingBlock(config, n_dims, *channels) for channels in merging_channels(widths)
        )

    def forward(self, scales: list[Tensor]) -> Tensor:
        """Return the finest scale with every coarser one merged into it."""
        *finer, features = scales
        for block, scale in zip(self, reversed(finer), strict=True):
            features = block(scale, features)
        return features


def merging_channels(widths: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Return fine, coarse and output channels of the merging blocks, coarsest first.

    Each block leaves as many channels as the next finer scale has.
    """
    channels, coarse = [], widths[-1]
    for scale in reversed(range(len(widths) - 1)):
        channels.append((widths[scale], coarse, widths[max(scale - 1, 0)]))
        coarse = widths[max(scale - 1, 0)]
    return channels
