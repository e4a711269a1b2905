"""Factorized Fourier Neural Operator (Tran et al., ICLR 2023), in any dimension."""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.fourier_modes import analyze, map_modes, modes_of_axes, synthesize
from lsm_core.layers.head import Head
from lsm_core.layers.shapes import Features, Field
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.models.grid_model import GridModel
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class FfnoConfig:
    """Everything that can be chosen about an F-FNO.

    `n_modes` is one number for all axes or one for each. The hidden layer of the feed-forward
    network is `expansion` times as wide as the features. `padding` points of zeros follow each
    axis, for problems that are not periodic.
    """

    width: int = 32
    n_modes: int | tuple[int, ...] = 12
    n_layers: int = 4
    expansion: int = 2
    head_width: int = 128
    padding: int = 0

    def __post_init__(self) -> None:
        check_at_least(1, self, "width", "n_modes", "n_layers", "expansion", "head_width")
        check_at_least(0, self, "padding")


class FactorizedSpectralConvolution(nn.Module):
    """The sum over the axes of a map of the lowest modes along that axis alone.

    The weights grow with the number of axes, where those of a joint transform grow with the
    product of the modes. Fewer modes are used along an axis that has fewer.
    """

    def __init__(self, n_inputs: int, n_outputs: int, n_modes: tuple[int, ...]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            nn.init.xavier_normal_(torch.empty(n_inputs, n_outputs, count, 2)) for count in n_modes
        )

    def forward(self, field: Field) -> Features:
        """Return the sum of the mapped fields."""
        parts = (self._along(field, axis, weight) for axis, weight in enumerate(self.weights, 1))
        return reduce(torch.add, parts)

    def _along(self, field: Tensor, axis: int, weight: Tensor) -> Tensor:
        """Return the field with its modes along one axis mapped."""
        n_points = field.shape[axis]
        used = min(weight.shape[2], n_points // 2 + 1)
        matrices = torch.view_as_complex(weight).movedim(2, 0)[:used]
        lines = analyze(field, axis, used).movedim(axis, -2)  # (batch, *others, mode, channel)
        mapped = map_modes(lines.flatten(0, -3), matrices)
        modes = mapped.view(*lines.shape[:-1], -1).movedim(-2, axis)
        return synthesize(modes, axis, n_points)


class FactorizedLayer(nn.Module):
    """A factorised convolution and a feed-forward network, added to what came in.

        z + W_2 relu(W_1 K(z) + b_1) + b_2

    The residual stands after the feed-forward network, which is what makes the layer nonlinear.
    """

    def __init__(self, config: FfnoConfig, n_modes: tuple[int, ...]) -> None:
        super().__init__()
        width, n_hidden = config.width, config.expansion * config.width
        self.convolution = FactorizedSpectralConvolution(width, width, n_modes)
        self.feed_forward = nn.Sequential(
            weight_norm(nn.Linear(width, n_hidden)),
            nn.ReLU(),
            weight_norm(nn.Linear(n_hidden, width)),
        )

    def forward(self, features: Field) -> Field:
        """Return the features after the layer."""
        return features + self.feed_forward(self.convolution(features))


class Ffno(GridModel):
    """Factorized Fourier Neural Operator on a regular grid.

    The defaults have the size that the LSM paper compares with. The weights serve every grid.
    The output network has an activation, as those of the other models here.
    """

    def __init__(self, config: FfnoConfig, shape: ProblemShape) -> None:
        padded = tuple(size + config.padding for size in shape.space)
        super().__init__(shape, config.width, padded)
        modes = modes_of_axes(config.n_modes, shape.space)
        self.layers = nn.Sequential(
            *(FactorizedLayer(config, modes) for _ in range(config.n_layers))
        )
        self.head = Head(config.width, config.head_width, shape.n_outputs)


def preset(task: Task) -> FfnoConfig:
    """Return the F-FNO of a preset."""
    modes, padding = task.n_modes, task.padding
    width = 16 if task.n_dims == 3 else 32
    return task.choose(
        smoke=FfnoConfig(width=16, n_modes=modes, n_layers=2, padding=padding),
        quick=FfnoConfig(width=width, n_modes=modes, padding=padding),
        published=FfnoConfig(n_modes=modes),
    )


MODEL = ModelEntry(config=FfnoConfig, network=Ffno, preset=preset)
