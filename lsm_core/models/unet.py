"""U-Net (Ronneberger et al., MICCAI 2015), in any dimension.

As in the comparisons of neural operators: linear interpolation on the way up, normalisation after
each convolution, as many channels at the coarsest scale as at the one before, coordinates among
the inputs, and a pointwise perceptron at the end. Convolutions keep the size of their field, which
in the original they shrink.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.by_dimension import pool
from lsm_core.layers.choices import check_at_least
from lsm_core.layers.convolution_block import SMOOTH, ConvolutionBlock, ConvolutionConfig
from lsm_core.layers.coordinates import append_coordinates, unit_coordinates
from lsm_core.layers.head import Head
from lsm_core.layers.merging_block import MergingBlock, merging_channels
from lsm_core.layers.padding import crop_to, pad_to, padded_shape
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class UnetConfig:
    """Everything that can be chosen about a U-Net.

    The channels are `width` times 1, 2, 4, 8, 8 from the finest scale on. Instance normalisation
    suits problems that are stepped in time.
    """

    width: int = 32
    n_scales: int = 5
    head_width: int = 128
    convolution: ConvolutionConfig = field(default_factory=ConvolutionConfig)

    def __post_init__(self) -> None:
        check_at_least(1, self, "width", "n_scales", "head_width")

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the channels of every scale, finest first."""
        doublings = [min(scale, max(self.n_scales - 2, 0)) for scale in range(self.n_scales)]
        return tuple(self.width * 2**doubling for doubling in doublings)


class Unet(nn.Module):
    """U-Net on a regular grid.

    The grid is padded with zeros to a size that can be halved between the scales.
    """

    coordinates: Tensor

    def __init__(self, config: UnetConfig, shape: ProblemShape) -> None:
        super().__init__()
        widths, convolution, n_dims = config.widths, config.convolution, shape.n_dims
        self.space, self.padded = shape.space, padded_space(config, shape.space)
        self.boundary, self.pooling = convolution.boundary, convolution.pooling
        self.lift = nn.Linear(shape.n_inputs + n_dims, widths[0])
        self.first = ConvolutionBlock(convolution, n_dims, *[widths[0]] * 3)
        self.down = nn.ModuleList(
            ConvolutionBlock(convolution, n_dims, fine, coarse, coarse)
            for fine, coarse in pairwise(widths)
        )
        self.up = nn.ModuleList(
            MergingBlock(convolution, n_dims, *channels) for channels in merging_channels(widths)
        )
        self.last = nn.Linear(widths[0], widths[0])
        self.head = Head(widths[0], config.head_width, shape.n_outputs)
        self.register_buffer("coordinates", unit_coordinates(shape.space), persistent=False)

    def forward(
        self, field: Float[Tensor, "batch *space input"]
    ) -> Float[Tensor, "batch *space output"]:
        """Return the predicted fields."""
        lifted = self.lift(append_coordinates(field, self.coordinates))
        scales = [self.first(pad_to(lifted, self.padded, self.boundary))]
        for block in self.down:
            scales.append(block(pool(scales[-1], self.pooling)))
        *finer, features = scales
        for block, scale in zip(self.up, reversed(finer), strict=True):
            features = block(scale, features)
        return self.head(crop_to(features, self.space), before=self.last)


def padded_space(config: UnetConfig, space: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the finest scale: the grid, padded to what all halvings divide."""
    padded = padded_shape(space, (2 ** (config.n_scales - 1),) * len(space))
    if any(2 * size < full for size, full in zip(space, padded, strict=True)):
        raise ValueError(
            f"a grid of {space} would be padded to {padded} for {config.n_scales} scales, "
            "more than twice its size; take fewer scales"
        )
    return padded


def preset(task: Task) -> UnetConfig:
    """Return the U-Net of a preset; small ones suit smooth periodic problems as those of LSM do."""
    convolution = SMOOTH if task.is_periodic else ConvolutionConfig()
    return task.choose(
        smoke=UnetConfig(width=8, n_scales=3, convolution=convolution),
        quick=UnetConfig(width=16, n_scales=4, convolution=convolution),
        published=UnetConfig(),
    )


MODEL = ModelEntry(config=UnetConfig, network=Unet, preset=preset)
