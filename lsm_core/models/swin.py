"""Swin Transformer (Liu et al., ICCV 2021), in any dimension.

Attention within windows, which every other block shifts by half their size. The original halves the
resolution between its stages, to classify images; here a value is wanted at every point, so all
blocks work at one resolution. Depth and width are smaller, to the size that the LSM paper compares
with.
"""

from dataclasses import dataclass
from math import prod

from torch import nn

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.coordinates import AppendCoordinates
from lsm_core.layers.head import Head
from lsm_core.layers.padding import crop_to, pad_to, padded_shape
from lsm_core.layers.patches import join_patches, split_patches
from lsm_core.layers.shapes import Inputs, Outputs
from lsm_core.layers.window_attention import window_layers
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class SwinConfig:
    """Everything that can be chosen about a Swin Transformer.

    A token is a patch of `patch` points an axis, and a window has `window` tokens an axis. The
    hidden layer of a block's perceptron is `expansion` times as wide as the tokens.
    """

    width: int = 128
    n_blocks: int = 4
    n_heads: int = 4
    window: int = 8
    patch: int = 2
    expansion: int = 2
    head_width: int = 128

    def __post_init__(self) -> None:
        check_at_least(2, self, "window")
        check_at_least(1, self, *vars(self))
        if self.width % self.n_heads:
            raise ValueError(f"width {self.width} must be a multiple of n_heads {self.n_heads}")


class Swin(nn.Module):
    """Swin Transformer of one resolution on a regular grid; the weights serve every grid.

    A linear map makes a token of the inputs and coordinates of each patch, and a perceptron makes
    of each token the outputs of all points of its patch.
    """

    def __init__(self, config: SwinConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.space, self.patch_shape = shape.space, (config.patch,) * shape.n_dims
        self.padded = padded_shape(shape.space, self.patch_shape)
        self.tokens_shape = tuple(size // config.patch for size in self.padded)
        n_points = prod(self.patch_shape)
        self.lift = nn.Linear(n_points * (shape.n_inputs + shape.n_dims), config.width)
        width, n_hidden = config.width, config.expansion * config.width
        self.blocks = window_layers(
            config.n_blocks, width, n_hidden, config.n_heads, self.tokens_shape, config.window
        )
        self.norm = nn.LayerNorm(width)
        self.head = Head(width, config.head_width, n_points * shape.n_outputs)
        self.with_coordinates = AppendCoordinates(shape.space)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        inputs = pad_to(self.with_coordinates(field), self.padded, "zero")
        patches = split_patches(inputs, self.patch_shape).flatten(1)
        tokens = self.lift(patches).view(len(field), *self.tokens_shape, -1)
        outputs = self.head(self.norm(self.blocks(tokens)))
        points = outputs.reshape(len(patches), prod(self.patch_shape), -1)
        return crop_to(join_patches(points, self.patch_shape, self.padded), self.space)


def preset(task: Task) -> SwinConfig:
    """Return the Swin Transformer of a preset.

    A window has as many tokens along every axis, so its attention grows with their product.
    """
    window = 4 if task.n_dims == 3 else 8
    return task.choose(
        smoke=SwinConfig(width=16, n_blocks=2, n_heads=2, window=window),
        quick=SwinConfig(width=32, n_blocks=4, n_heads=2, window=window),
        published=SwinConfig(),
    )


MODEL = ModelEntry(config=SwinConfig, network=Swin, preset=preset)
