"""Proper orthogonal decomposition with radial basis functions.

Inputs and targets are written in their leading principal directions, and the coordinates of targets
are interpolated between those of inputs,

    b(u) = sum over samples j of w_j exp(-|c(a) - c(a_j)|^2 / s^2),    (Phi + penalty I) w = b

Width s and penalty are those of a few with which samples are best predicted from the others, the
rounding of large weights that cancel included: wide functions have such weights.
"""

from dataclasses import dataclass
from itertools import product
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.shapes import Inputs, Outputs
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.models.fitted import (
    FittedModel,
    Pairs,
    assign,
    leave_one_out,
    principal_directions,
    stacked,
)
from lsm_core.problems.shape import ProblemShape

WIDTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""In parts of the median distance between samples."""
PENALTIES = (1e-10, 1e-7, 1e-4, 1e-2)
"""Beside the ones on the diagonal of the kernel."""


@dataclass(frozen=True, kw_only=True)
class PodRbfConfig:
    """How many directions are kept of inputs and targets, and of how many samples at most.

    `width` is the number of directions of the targets.
    """

    width: int = 128
    n_input_modes: int = 64
    n_centres: int = 1024

    def __post_init__(self) -> None:
        check_at_least(1, self, "width", "n_input_modes", "n_centres")


class PodRbf(FittedModel):
    """An interpolation between whole fields, tied to their grid."""

    def __init__(self, config: PodRbfConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.result = (*shape.space, shape.n_outputs)
        n_inputs, n_outputs = prod(shape.space) * shape.n_inputs, prod(self.result)
        n_modes = min(config.n_input_modes, n_inputs)
        n_targets = min(config.width, n_outputs)
        self.input_mean = nn.Parameter(torch.zeros(n_inputs))
        self.input_modes = nn.Parameter(torch.zeros(n_inputs, n_modes))
        self.centres = nn.Parameter(torch.zeros(config.n_centres, n_modes))
        self.reach = nn.Parameter(torch.ones(1))
        self.weights = nn.Parameter(torch.zeros(config.n_centres, n_targets))
        self.output_modes = nn.Parameter(torch.zeros(n_targets, n_outputs))
        self.output_mean = nn.Parameter(torch.zeros(n_outputs))

    def fit(self, parts: Pairs) -> None:
        """Find the directions, then the weights of the samples."""
        inputs, targets = stacked(parts)
        inputs, targets = inputs[: len(self.centres)], targets[: len(self.centres)]
        input_mean, output_mean = inputs.mean(0), targets.mean(0)
        modes, places = principal_directions(inputs - input_mean, self.input_modes.shape[1])
        directions, wanted = principal_directions(targets - output_mean, self.weights.shape[1])
        distances = squared_distances(places, places)
        median = float(distances[distances > 0].median().sqrt()) if distances.any() else 1.0
        tried = {
            (width, penalty): self._tried(places, width * median, penalty, wanted)
            for width, penalty in product(WIDTHS, PENALTIES)
        }
        best = min(tried, key=lambda choice: tried[choice][0])
        assign(self.input_mean, input_mean)
        assign(self.input_modes, modes)
        assign(self.centres, places)
        assign(self.reach, torch.tensor([best[0] * median]))
        assign(self.weights, tried[best][1])
        assign(self.output_modes, directions.T)
        assign(self.output_mean, output_mean)

    def _tried(
        self,
        places: Float[Tensor, "samples mode"],
        reach: float,
        penalty: float,
        wanted: Float[Tensor, "samples told"],
    ) -> tuple[float, Float[Tensor, "samples told"]]:
        """Return the error that is to be expected at other samples, and the weights."""
        kernel = radial(places, places, reach)
        error, weights = leave_one_out(kernel, penalty, wanted)
        kept, rounded = (each.to(self.weights.dtype) for each in (places, weights))
        off = radial(kept, kept, reach) @ rounded - kernel @ weights
        return error + float(off.norm() / wanted.norm().clamp_min(1e-30)), weights

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        places = (field.flatten(1) - self.input_mean) @ self.input_modes
        kernel = radial(places, self.centres, self.reach)
        fields = kernel @ self.weights @ self.output_modes + self.output_mean
        return fields.view(-1, *self.result)


def radial(
    some: Float[Tensor, "some mode"], others: Float[Tensor, "others mode"], reach: Tensor | float
) -> Float[Tensor, "some others"]:
    """Return the radial function of all points of two sets."""
    return (-squared_distances(some, others) / reach**2).exp()


def squared_distances(
    some: Float[Tensor, "some mode"], others: Float[Tensor, "others mode"]
) -> Float[Tensor, "some others"]:
    """Return |a - b|^2 between all points of two sets."""
    squares = some.square().sum(1).unsqueeze(1) + others.square().sum(1)
    return (squares - 2 * some @ others.T).clamp_min(0)


def preset(task: Task) -> PodRbfConfig:
    """Return the interpolation of a preset: small ones have a few hundred samples at most."""
    return task.choose(
        smoke=PodRbfConfig(width=16, n_input_modes=16, n_centres=64),
        quick=PodRbfConfig(width=64, n_input_modes=32, n_centres=512),
        published=PodRbfConfig(),
    )


MODEL = ModelEntry(
    config=PodRbfConfig, network=PodRbf, preset=preset, takes_points=True, is_fitted=True
)
