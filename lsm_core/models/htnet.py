"""HT-Net, a hierarchical transformer operator (Liu et al., 2022), in any dimension."""

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.coordinates import AppendCoordinates
from lsm_core.layers.fourier_modes import FourierLayers, SpectralResampling, modes_of_axes
from lsm_core.layers.head import Head
from lsm_core.layers.padding import crop_to, pad_to, padded_shape
from lsm_core.layers.patches import join_patches, split_patches
from lsm_core.layers.shapes import Field, Inputs, Outputs
from lsm_core.layers.strided_convolution import Convolution
from lsm_core.layers.window_attention import window_layers
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class HtnetConfig:
    """Everything that can be chosen about an HT-Net.

    There is one number of attention layers in `depths` for each level, finest first. A token of
    the finest level is a patch of `patch` points an axis; each coarser level has half as many
    tokens an axis, twice as wide. A window has `window` tokens an axis. `n_modes`, one number for
    all axes or one for each, belongs to the Fourier layers of the decoder.
    """

    width: int = 32
    depths: tuple[int, ...] = (1, 1, 1)
    n_heads: int = 1
    window: int = 4
    patch: int = 2
    expansion: int = 2
    n_modes: int | tuple[int, ...] = 12
    n_decoder_layers: int = 5
    head_width: int = 128

    def __post_init__(self) -> None:
        check_at_least(2, self, "window")
        check_at_least(1, self, *vars(self))
        if self.width % self.n_heads:
            raise ValueError(f"width {self.width} must be a multiple of n_heads {self.n_heads}")


class Reduction(nn.Module):
    """A linear map from the points of each box of a grid to one token."""

    def __init__(self, box: tuple[int, ...], n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.box = box
        self.linear = nn.Linear(torch.Size(box).numel() * n_inputs, n_outputs)

    def forward(self, points: Field) -> Float[Tensor, "batch *coarse feature"]:
        """Return the token of every box."""
        batch, *space, _ = points.shape
        coarse = (size // width for size, width in zip(space, self.box, strict=True))
        tokens = self.linear(split_patches(points, self.box).flatten(1))
        return tokens.view(batch, *coarse, -1)


class Decomposition(nn.Module):
    """A linear map from each token to the points of its box."""

    def __init__(self, box: tuple[int, ...], n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.box = box
        self.linear = nn.Linear(n_inputs, torch.Size(box).numel() * n_outputs)

    def forward(self, tokens: Field) -> Float[Tensor, "batch *fine feature"]:
        """Return the points of every box."""
        coarse = tokens.shape[1:-1]
        fine = tuple(size * width for size, width in zip(coarse, self.box, strict=True))
        points = self.linear(tokens).flatten(0, -2)
        boxes = points.view(len(points), torch.Size(self.box).numel(), -1)
        return join_patches(boxes, self.box, fine)


class Hierarchy(nn.Module):
    """Attention at every level of a hierarchy of grids, from fine to coarse and back.

    On the way to the coarsest level the tokens of each box are reduced to one, and on the way
    back each is decomposed and added to the tokens of its box. The two are nested: a coarse token
    sees the points of its box only through the levels between.
    """

    def __init__(self, config: HtnetConfig, space: tuple[int, ...]) -> None:
        super().__init__()
        box, n_levels = (2,) * len(space), len(config.depths)
        widths = [config.width * 2**level for level in range(n_levels)]
        self.attention = nn.ModuleList()
        for level, (width, depth) in enumerate(zip(widths, config.depths, strict=True)):
            grid = tuple(size // 2**level for size in space)
            n_hidden = config.expansion * width
            self.attention.append(
                window_layers(depth, width, n_hidden, config.n_heads, grid, config.window)
            )
        self.reduce = nn.ModuleList(
            Reduction(box, fine, coarse) for fine, coarse in pairwise(widths)
        )
        self.decompose = nn.ModuleList(
            Decomposition(box, coarse, fine) for fine, coarse in pairwise(widths)
        )

    def forward(self, tokens: Field) -> Field:
        """Return the tokens of the finest level."""
        tokens = self.attention[0](tokens)
        levels = []
        for reduce, attention in zip(self.reduce, self.attention[1:], strict=True):
            levels.append(tokens)
            tokens = attention(reduce(tokens))
        for decompose in reversed(self.decompose):
            tokens = levels.pop() + decompose(tokens)
        return tokens


class Htnet(nn.Module):
    """Hierarchical transformer operator on a regular grid; the weights serve every grid.

    The defaults are the authors' for Darcy flow, with perceptrons twice as wide as their inputs:
    their number of parameters is then within 1 % of that of the LSM paper. The authors train with
    a loss on derivatives too; the loss here is that of the other models.
    """

    def __init__(self, config: HtnetConfig, shape: ProblemShape) -> None:
        super().__init__()
        n_dims, width = shape.n_dims, config.width
        modes = modes_of_axes(config.n_modes, shape.space)
        self.space = shape.space
        divisor = config.patch * 2 ** (len(config.depths) - 1)
        self.padded = padded_shape(shape.space, (divisor,) * n_dims)
        box = (config.patch,) * n_dims
        self.with_coordinates = AppendCoordinates(shape.space)
        self.embed = Reduction(box, shape.n_inputs + n_dims, width)
        self.hierarchy = Hierarchy(config, tuple(size // config.patch for size in self.padded))
        self.decompose = Decomposition(box, width, width)
        count = range(config.n_decoder_layers)
        self.decoder = FourierLayers(
            spectral=(SpectralResampling(width, width, modes) for _ in count),
            local=(Convolution(n_dims, width, width) for _ in count),
        )
        self.head = Head(width, config.head_width, shape.n_outputs)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        inputs = pad_to(self.with_coordinates(field), self.padded, "zero")
        tokens = self.hierarchy(self.embed(inputs))
        features = crop_to(self.decompose(tokens), self.space)
        return self.head(self.decoder(features))


def preset(task: Task) -> HtnetConfig:
    """Return the HT-Net of a preset."""
    config = HtnetConfig(n_modes=task.n_modes)
    return task.choose(
        smoke=replace(config, width=8, depths=(1, 1), n_decoder_layers=2),
        quick=replace(config, width=16, n_decoder_layers=3),
        published=config,
    )


MODEL = ModelEntry(config=HtnetConfig, network=Htnet, preset=preset)
