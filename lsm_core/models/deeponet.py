"""DeepONet (Lu et al., Nature Machine Intelligence 2021), in any dimension.

    G(u)(x) = sum over p of b_p(u) t_p(x) + constant

The branch b reads the input at fixed sensors, the trunk t reads coordinates. As in the comparison
of Lu et al. (CMAME 2022) the branch is a convolutional network. Each output channel has a trunk and
a constant of its own. GELU takes the place of ReLU: the functions of position are then smooth, and
a narrow trunk cannot start as zero everywhere.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.coordinates import unit_coordinates
from lsm_core.layers.shapes import Inputs, Outputs
from lsm_core.layers.strided_convolution import Convolution
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class DeeponetConfig:
    """Everything that can be chosen about a DeepONet.

    `width` is the number of functions that are summed, and the width of the trunks and of the
    dense layers of the branch. Along each axis there are `n_sensors` sensors, from one end to the
    other, or as many as there are points if these are fewer.
    """

    width: int = 128
    n_trunk_layers: int = 4
    n_sensors: int = 64

    def __post_init__(self) -> None:
        check_at_least(2, self, "width", "n_trunk_layers", "n_sensors")


class Branch(nn.Module):
    """From the values at the sensors to coefficients: two convolutions, then two dense layers."""

    def __init__(self, config: DeeponetConfig, sensors: tuple[int, ...], n_inputs: int) -> None:
        super().__init__()
        n_dims, width = len(sensors), config.width
        coarse = [-(-size // 4) for size in sensors]
        self.convolutions = nn.Sequential(
            Convolution(n_dims, n_inputs, width // 2, kernel_size=5, stride=2),
            nn.GELU(),
            Convolution(n_dims, width // 2, width, kernel_size=5, stride=2),
            nn.GELU(),
        )
        self.dense = nn.Sequential(
            nn.Linear(prod(coarse) * width, width), nn.GELU(), nn.Linear(width, width)
        )

    def forward(
        self, values: Float[Tensor, "batch *sensor input"]
    ) -> Float[Tensor, "batch function"]:
        """Return the coefficient of every function of the trunk."""
        return self.dense(self.convolutions(values).flatten(1))


class Trunk(nn.Module):
    """From coordinates to the values of all functions there: dense layers with GELU after each."""

    def __init__(self, config: DeeponetConfig, n_dims: int) -> None:
        super().__init__()
        widths = [n_dims, *[config.width] * config.n_trunk_layers]
        layers = [
            layer
            for n_inputs, n_outputs in pairwise(widths)
            for layer in (nn.Linear(n_inputs, n_outputs), nn.GELU())
        ]
        self.layers = nn.Sequential(*layers)

    def forward(
        self, coordinates: Float[Tensor, "*space axis"]
    ) -> Float[Tensor, "*space function"]:
        """Return the functions at every point."""
        return self.layers(coordinates)


class Deeponet(nn.Module):
    """DeepONet whose sensors and outputs are on a regular grid.

    It is tied to the sensors: the first dense layer of the branch has a weight for each. Grids
    with at least `n_sensors` points an axis have the same sensors and can share their weights.
    """

    coordinates: Tensor

    def __init__(self, config: DeeponetConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.sensors = tuple(min(config.n_sensors, size) for size in shape.space)
        self.branch = Branch(config, self.sensors, shape.n_inputs)
        self.trunks = nn.ModuleList(Trunk(config, shape.n_dims) for _ in range(shape.n_outputs))
        self.constant = nn.Parameter(torch.zeros(shape.n_outputs))
        self.register_buffer("coordinates", unit_coordinates(shape.space), persistent=False)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        coefficients = self.branch(self.at_sensors(field))
        # The functions are the same for all samples, so they are evaluated once for a batch.
        functions = torch.stack([trunk(self.coordinates) for trunk in self.trunks], dim=-2)
        flat = functions.flatten(0, -2)  # (point output, function)
        sums = (coefficients @ flat.T).view(len(field), *functions.shape[:-1])
        return sums + self.constant

    def at_sensors(self, field: Inputs) -> Float[Tensor, "batch *sensor input"]:
        """Return the field at the sensors, the nearest grid points to even distances."""
        for axis, n_sensors in enumerate(self.sensors, start=1):
            last = field.shape[axis] - 1
            if n_sensors <= last:
                points = torch.linspace(0, last, n_sensors, device=field.device).round().long()
                field = field.index_select(axis, points)
        return field


def preset(task: Task) -> DeeponetConfig:
    """Return the DeepONet of a preset."""
    return task.choose(
        smoke=DeeponetConfig(width=64, n_sensors=16),
        quick=DeeponetConfig(width=64, n_sensors=32),
        published=DeeponetConfig(),
    )


MODEL = ModelEntry(config=DeeponetConfig, network=Deeponet, preset=preset)
