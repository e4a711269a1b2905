"""U-FNO (Wen et al., Advances in Water Resources 2022), in any dimension.

Fourier layers, then U-Fourier layers, which add a small U-Net to the spectral and the local map:

    v  ->  relu(K v + W v + b)     and     v  ->  relu(K v + U v + W v + b)

The original takes time as an axis and pads every axis by eight points. Here axes that cannot be
halved are cropped on the way up, and padding is a choice.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from lsm_core.layers.choices import check_at_least, check_choices
from lsm_core.layers.fourier import SpectralConvolution
from lsm_core.layers.fourier_modes import modes_of_axes
from lsm_core.layers.head import Head
from lsm_core.layers.normalization import NormalizationKind
from lsm_core.layers.shapes import Field
from lsm_core.layers.strided_convolution import (
    Convolution,
    LeakyConvolution,
    LeakyTransposedConvolution,
)
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.models.grid_model import GridModel
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
        check_at_least(1, self, "width", "n_modes", "n_unet_layers", "head_width")
        check_at_least(0, self, "n_fourier_layers", "padding")
        check_choices(self)


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

    def forward(self, features: Field) -> Field:
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

    def forward(self, features: Field) -> Field:
        """Return the features after the layer."""
        total = self.spectral(features) + self.local(features)
        if self.unet is not None:
            total = total + self.unet(features)
        return functional.relu(total)


class Ufno(GridModel):
    """U-FNO on a regular grid; the defaults have the size that the LSM paper compares with."""

    def __init__(self, config: UfnoConfig, shape: ProblemShape) -> None:
        padded = tuple(size + config.padding for size in shape.space)
        super().__init__(shape, config.width, padded)
        modes = modes_of_axes(config.n_modes, shape.space)
        with_unet = [False] * config.n_fourier_layers + [True] * config.n_unet_layers
        self.layers = nn.Sequential(
            *(FourierLayer(config, modes, with_unet=present) for present in with_unet)
        )
        self.head = Head(config.width, config.head_width, shape.n_outputs)


def preset(task: Task) -> UfnoConfig:
    """Return the U-FNO of a preset; small ones are normalised as those of TF-Net in time."""
    modes, padding = task.n_modes, task.padding
    normalization: NormalizationKind = "instance" if task.steps_through_time else "batch"
    small = UfnoConfig(n_modes=modes, padding=padding, normalization=normalization)
    width = 8 if task.n_dims == 3 else 16
    return task.choose(
        smoke=replace(small, width=8, n_fourier_layers=1, n_unet_layers=1),
        quick=replace(small, width=width, n_fourier_layers=2, n_unet_layers=2),
        published=UfnoConfig(n_modes=modes),
    )


MODEL = ModelEntry(config=UfnoConfig, network=Ufno, preset=preset)
