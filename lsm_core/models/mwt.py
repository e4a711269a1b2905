"""Multiwavelet-based operator (Gupta et al., NeurIPS 2021), in any dimension."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.fourier_modes import SpectralResampling
from lsm_core.layers.head import Head
from lsm_core.layers.multiwavelets import join_bands, split_bands
from lsm_core.layers.shapes import Field
from lsm_core.layers.strided_convolution import Convolution
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.models.grid_model import GridModel
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class MwtConfig:
    """Everything that can be chosen about an MWT.

    There are `width` polynomials of degree below `order` along each axis at every grid point: c
    and k in the paper, with c k^d channels. `n_modes` (alpha) is the number of Fourier modes of
    the kernel of details.
    """

    width: int = 4
    order: int = 3
    n_modes: int = 12
    n_blocks: int = 4
    head_width: int = 128

    def __post_init__(self) -> None:
        check_at_least(1, self, "width", "order", "n_modes", "n_blocks", "head_width")


class Kernel(nn.Module):
    """A linear kernel of a field, an activation and a linear map of its channels."""

    def __init__(self, kernel: nn.Module, n_channels: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.output = nn.Linear(n_channels, n_channels)

    def forward(self, features: Field) -> Field:
        """Return the features after the kernel."""
        return self.output(functional.relu(self.kernel(features)))


class MultiwaveletBlock(nn.Module):
    """An operator in the non-standard form of its multiwavelet representation.

    With smooth part s and details d of each level n, from fine to coarse,

        d'_n = A d_n + B s_n,    s'_n = C d_n,    and  s'_0 = T_0 s_0  at the coarsest level.

    The parts of the result are then joined from coarse to fine. All levels share A, B and C. Of
    the 2^d - 1 bands of details the authors' model follows the one that is a detail along every
    axis; so does this one, whose size is then theirs.
    """

    def __init__(self, config: MwtConfig, space: tuple[int, ...]) -> None:
        super().__init__()
        n_dims = len(space)
        n_channels = config.width * config.order**n_dims
        self.order = config.order
        self.kept = (0, 2**n_dims - 1)
        self.n_levels = min(size.bit_length() - 1 for size in space)
        modes, channels = (config.n_modes,) * n_dims, (n_channels, n_channels)
        # Given by its lowest Fourier modes; the other two are three points wide.
        self.details = Kernel(SpectralResampling(*channels, modes), n_channels)
        self.smooth_to_details = Kernel(Convolution(n_dims, *channels), n_channels)
        self.details_to_smooth = Kernel(Convolution(n_dims, *channels), n_channels)
        self.coarsest = nn.Linear(n_channels, n_channels)

    def forward(self, features: Field) -> Field:
        """Return the features after the operator."""
        levels = []
        for _ in range(self.n_levels):
            features, details = split_bands(features, self.order, self.kept)
            new_details = self.details(details) + self.smooth_to_details(features)
            levels.append((self.details_to_smooth(details), new_details))
        features = self.coarsest(features)
        for smooth, details in reversed(levels):
            bands = torch.stack([features + smooth, details])
            features = join_bands(bands, self.order, self.kept)
        return features


class Mwt(GridModel):
    """Multiwavelet-based operator on a regular grid.

    Each axis is continued with zeros to its own power of two, not all to the longest one: the
    transform halves the axes together, and ends at the level where the shortest has one cell, so
    nothing asks for a cube. The defaults have the size that the LSM paper compares with. The
    finest level is that of the grid: the weights fit every grid but mean another operator there.
    """

    def __init__(self, config: MwtConfig, shape: ProblemShape) -> None:
        n_channels = config.width * config.order**shape.n_dims
        padded = tuple(1 << (size - 1).bit_length() for size in shape.space)
        super().__init__(shape, n_channels, padded)
        self.blocks = nn.ModuleList(
            MultiwaveletBlock(config, padded) for _ in range(config.n_blocks)
        )
        self.head = Head(n_channels, config.head_width, shape.n_outputs)

    def mapped(self, features: Field) -> Field:
        """Return the features after all blocks, with ReLU between them."""
        for i, block in enumerate(self.blocks):
            if i > 0:
                features = functional.relu(features)
            features = block(features)
        return features


def preset(task: Task) -> MwtConfig:
    """Return the multiwavelet model of a preset."""
    order = 2 if task.n_dims == 3 else 3
    return task.choose(
        smoke=MwtConfig(width=4, order=2, n_modes=4, n_blocks=2),
        quick=MwtConfig(width=2, order=order, n_modes=8, n_blocks=2),
        published=MwtConfig(),
    )


MODEL = ModelEntry(config=MwtConfig, network=Mwt, preset=preset)
