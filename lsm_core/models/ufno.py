"""U-FNO (Wen et al., Advances in Water Resources 2022), in any dimension.

Fourier layers, then U-Fourier layers, which add a small U-Net to the spectral and the local map:

    v  ->  relu(K v + W v + b)     and     v  ->  relu(K v + U v + W v + b)

The original takes time as an axis and pads every axis by eight points. Here axes that cannot be
halved are cropped on the way up, and padding is a choice.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.choices import check_choice
from lsm_core.layers.coordinates import unit_coordinates
from lsm_core.layers.fourier import SpectralConvolution
from lsm_core.layers.head import Head
from lsm_core.layers.normalization import NormalizationKind
from lsm_core.layers.padding import crop_to, pad_to
from lsm_core.layers.strided_convolution import (
    Convolution,
    LeakyConvolution,
    LeakyTransposedConvolution,
)
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class UfnoConfig:
    """Everything that can be chosen about a U-FNO.

    `n_modes` is one number for all axes or one for each. `padding` points of zeros follow each
    axis, for problems that are not periodic.
    """

    width: int = 32
    n_modes: int | tuple[int, ...] = 12
    n_fourier_layers: int = 3
    n_unet_layers: int = 3
    head_width: int = 128
    padding: int = 0
    normalization: NormalizationKind = "batch"

    def __post_init__(self) -> None:
        modes = self.n_modes if isinstance(self.n_modes, tuple) else (self.n_modes,)
        for name, value in (
            ("width", self.width),
            ("n_modes", min(modes)),
            ("n_unet_layers", self.n_unet_layers),
            ("head_width", self.head_width),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name, value in (
            ("n_fourier_layers", self.n_fourier_layers),
            ("padding", self.padding),
        ):
            if value < 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        check_choice("normalization", self.normalization, NormalizationKind)


class SmallUnet(nn.Module):
    """A U-Net of three halvings with the same number of channels at every scale."""

    def __init__(self, config: UfnoConfig, n_dims: int) -> None:
        super().__init__()
        width = config.width

        def layer(stride: int) -> nn.Module:
            return LeakyConvolution(
                n_dims, width, width, stride=stride, normalization=config.normalization
            )

        self.down = nn.ModuleList(
            [layer(2), nn.Sequential(layer(2), layer(1)), nn.Sequential(layer(2), layer(1))]
        )
        self.up = nn.ModuleList(
            LeakyTransposedConvolution(n_dims, n_inputs, width)
            for n_inputs in (width, 2 * width, 2 * width)
        )
        self.output = Convolution(n_dims, 2 * width, width)

    def forward(
        self, features: Float[Tensor, "batch *space channel"]
    ) -> Float[Tensor, "batch *space channel"]:
        """Return the features after all scales."""
        scales = [features]
        for block in self.down:
            scales.append(block(scales[-1]))
        *finer, features = scales
        for block, scale in zip(self.up, reversed(finer), strict=True):
            upper = block(features, tuple(scale.shape[1:-1]))
            features = torch.cat([scale, upper], dim=-1)
        return self.output(features)


class FourierLayer(nn.Module):
    """A spectral and a pointwise map, a U-Net if wanted, and ReLU of their sum."""

    def __init__(self, config: UfnoConfig, n_modes: tuple[int, ...], *, with_unet: bool) -> None:
        super().__init__()
        width = config.width
        self.spectral = SpectralConvolution(width, width, n_modes)
        self.local = nn.Linear(width, width)
        self.unet = SmallUnet(config, len(n_modes)) if with_unet else None

    def forward(
        self, features: Float[Tensor, "batch *space channel"]
    ) -> Float[Tensor, "batch *space channel"]:
        """Return the features after the layer."""
        total = self.spectral(features) + self.local(features)
        if self.unet is not None:
            total = total + self.unet(features)
        return functional.relu(total)


class Ufno(nn.Module):
    """U-FNO on a regular grid; the defaults have the size that the LSM paper compares with."""

    coordinates: Tensor

    def __init__(self, config: UfnoConfig, shape: ProblemShape) -> None:
        super().__init__()
        modes = config.n_modes
        if isinstance(modes, int):
            modes = (modes,) * shape.n_dims
        if len(modes) != shape.n_dims:
            raise ValueError(f"n_modes {modes} has not one number for each axis of {shape.space}")
        self.space = shape.space
        self.padded = tuple(size + config.padding for size in shape.space)
        self.lift = nn.Linear(shape.n_inputs + shape.n_dims, config.width)
        with_unet = [False] * config.n_fourier_layers + [True] * config.n_unet_layers
        self.layers = nn.Sequential(
            *(FourierLayer(config, modes, with_unet=present) for present in with_unet)
        )
        self.head = Head(config.width, config.head_width, shape.n_outputs)
        self.register_buffer("coordinates", unit_coordinates(shape.space), persistent=False)

    def forward(
        self, field: Float[Tensor, "batch *space input"]
    ) -> Float[Tensor, "batch *space output"]:
        """Return the predicted fields."""
        coordinates = self.coordinates.expand(len(field), *self.coordinates.shape)
        features = self.lift(torch.cat([field, coordinates], dim=-1))
        features = self.layers(pad_to(features, self.padded, "zero"))
        return self.head(crop_to(features, self.space))
