"""ResNet (He et al., CVPR 2016), in any dimension.

As in the comparisons of neural operators, a chain of residual blocks at full resolution, without
pooling, whose channels double from stage to stage. Coordinates are among the inputs.
"""

from dataclasses import dataclass
from itertools import pairwise

from torch import nn
from torch.nn import functional

from lsm_core.layers.choices import check_choices
from lsm_core.layers.coordinates import AppendCoordinates
from lsm_core.layers.normalization import NormalizationKind
from lsm_core.layers.shapes import Features, Field, Inputs, Outputs
from lsm_core.layers.strided_convolution import Convolution, LeakyConvolution
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class ResnetConfig:
    """Everything that can be chosen about a ResNet.

    `n_blocks` has the number of blocks of each stage. The first has `width` channels, each other
    twice as many as the one before.
    """

    width: int = 64
    n_blocks: tuple[int, ...] = (3, 4, 4, 3)
    normalization: NormalizationKind = "batch"

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, got {self.width}")
        if not self.n_blocks or min(self.n_blocks) < 1:
            raise ValueError(f"n_blocks must be positive, one a stage, got {self.n_blocks}")
        check_choices(self)

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the channels of every block."""
        return tuple(
            self.width * 2**stage for stage, count in enumerate(self.n_blocks) for _ in range(count)
        )


class ResidualBlock(nn.Module):
    """Two convolution layers, added to what came in.

    Where the number of channels changes, what came in goes through a convolution of its own.
    """

    def __init__(
        self, n_dims: int, n_inputs: int, n_outputs: int, normalization: NormalizationKind
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            LeakyConvolution(n_dims, n_inputs, n_outputs, normalization=normalization),
            LeakyConvolution(n_dims, n_outputs, n_outputs, normalization=normalization),
        )
        changes = n_inputs != n_outputs
        self.skip = Convolution(n_dims, n_inputs, n_outputs) if changes else None

    def forward(self, features: Field) -> Features:
        """Return the features after the block."""
        skipped = features
        if self.skip is not None:
            skipped = functional.leaky_relu(self.skip(features), LeakyConvolution.slope)
        return self.layers(features) + skipped


class Resnet(nn.Module):
    """ResNet on a regular grid; the weights serve every grid."""

    def __init__(self, config: ResnetConfig, shape: ProblemShape) -> None:
        super().__init__()
        widths = (shape.n_inputs + shape.n_dims, *config.widths)
        self.blocks = nn.Sequential(
            *(
                ResidualBlock(shape.n_dims, *channels, config.normalization)
                for channels in pairwise(widths)
            )
        )
        self.output = Convolution(shape.n_dims, widths[-1], shape.n_outputs)
        self.with_coordinates = AppendCoordinates(shape.space)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        return self.output(self.blocks(self.with_coordinates(field)))


def preset(task: Task) -> ResnetConfig:
    """Return the ResNet of a preset."""
    return task.choose(
        smoke=ResnetConfig(width=8, n_blocks=(1, 1)),
        quick=ResnetConfig(width=8, n_blocks=(1, 1, 1)),
        published=ResnetConfig(),
    )


MODEL = ModelEntry(config=ResnetConfig, network=Resnet, preset=preset)
