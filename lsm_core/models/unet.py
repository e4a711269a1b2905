"""U-Net (Ronneberger et al., MICCAI 2015), in any dimension.

As in the comparisons of neural operators: linear interpolation on the way up, normalisation after
each convolution, as many channels at the coarsest scale as at the one before, coordinates among
the inputs, and a pointwise perceptron at the end. Convolutions keep the size of their field, which
in the original they shrink.
"""

from dataclasses import dataclass, field

from torch import nn

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.convolution_block import (
    SMOOTH,
    ConvolutionBlock,
    ConvolutionConfig,
    DownwardBlocks,
    UpwardBlocks,
)
from lsm_core.layers.coordinates import AppendCoordinates
from lsm_core.layers.head import Head
from lsm_core.layers.padding import check_padding, crop_to, pad_to, padded_shape
from lsm_core.layers.shapes import Inputs, Outputs
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

    def __init__(self, config: UnetConfig, shape: ProblemShape) -> None:
        super().__init__()
        widths, convolution, n_dims = config.widths, config.convolution, shape.n_dims
        self.space = shape.space
        self.padded = padded_shape(shape.space, (2 ** (config.n_scales - 1),) * n_dims)
        check_padding(shape.space, self.padded, f"{config.n_scales} scales")
        self.boundary = convolution.boundary
        self.lift = nn.Linear(shape.n_inputs + n_dims, widths[0])
        self.first = ConvolutionBlock(convolution, n_dims, *[widths[0]] * 3)
        self.down = DownwardBlocks(convolution, n_dims, widths)
        self.up = UpwardBlocks(convolution, n_dims, widths)
        self.last = nn.Linear(widths[0], widths[0])
        self.head = Head(widths[0], config.head_width, shape.n_outputs)
        self.with_coordinates = AppendCoordinates(shape.space)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        lifted = self.lift(self.with_coordinates(field))
        finest = self.first(pad_to(lifted, self.padded, self.boundary))
        merged = crop_to(self.up(self.down(finest)), self.space)
        return self.head(merged, before=self.last)


def preset(task: Task) -> UnetConfig:
    """Return the U-Net of a preset; small ones suit smooth periodic problems as those of LSM do."""
    convolution = SMOOTH if task.is_periodic else ConvolutionConfig()
    return task.choose(
        smoke=UnetConfig(width=8, n_scales=3, convolution=convolution),
        quick=UnetConfig(width=16, n_scales=4, convolution=convolution),
        published=UnetConfig(),
    )


MODEL = ModelEntry(config=UnetConfig, network=Unet, preset=preset)
