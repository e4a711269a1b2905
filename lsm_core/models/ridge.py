"""Ridge regression from all values of the input to all values of the target.

    u = mean + (a - mean) W,    W = argmin |A W - U|^2 + penalty |W|^2

over the centred training samples A and U. W has as many rows as the samples span directions, and is
kept as two thin matrices. The penalty is the one of a few whose error is least when every sample is
predicted from the others.
"""

from dataclasses import dataclass
from math import prod

import torch
from torch import nn

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

PENALTIES = tuple(10.0**power for power in range(-8, 3))
"""In parts of the mean square of the samples."""


@dataclass(frozen=True, kw_only=True)
class RidgeConfig:
    """How many directions of the inputs are kept at most: with as many as samples, all."""

    width: int = 1024

    def __post_init__(self) -> None:
        check_at_least(1, self, "width")


class Ridge(FittedModel):
    """A linear map of whole fields, tied to their grid."""

    def __init__(self, config: RidgeConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.result = (*shape.space, shape.n_outputs)
        n_inputs, n_outputs = prod(shape.space) * shape.n_inputs, prod(self.result)
        n_modes = min(config.width, n_inputs)
        self.input_mean = nn.Parameter(torch.zeros(n_inputs))
        self.input_modes = nn.Parameter(torch.zeros(n_inputs, n_modes))
        self.coefficients = nn.Parameter(torch.zeros(n_modes, n_outputs))
        self.output_mean = nn.Parameter(torch.zeros(n_outputs))

    def fit(self, parts: Pairs) -> None:
        """Solve the normal equations in the space of the samples."""
        inputs, targets = stacked(parts)
        input_mean, output_mean = inputs.mean(0), targets.mean(0)
        centred, wanted = inputs - input_mean, targets - output_mean
        kernel = centred @ centred.T
        size = float(kernel.diagonal().mean())
        tried = {part * size: leave_one_out(kernel, part * size, wanted) for part in PENALTIES}
        _, weights = tried[min(tried, key=lambda penalty: tried[penalty][0])]
        modes, coordinates = principal_directions(centred, self.input_modes.shape[1])
        assign(self.input_mean, input_mean)
        assign(self.output_mean, output_mean)
        assign(self.input_modes, modes)
        assign(self.coefficients, coordinates.T @ weights)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        coordinates = (field.flatten(1) - self.input_mean) @ self.input_modes
        return (coordinates @ self.coefficients + self.output_mean).view(-1, *self.result)


def preset(task: Task) -> RidgeConfig:
    """Return the regression of a preset: small ones have a few hundred samples at most."""
    return task.choose(
        smoke=RidgeConfig(width=64), quick=RidgeConfig(width=512), published=RidgeConfig()
    )


MODEL = ModelEntry(
    config=RidgeConfig, network=Ridge, preset=preset, takes_points=True, is_fitted=True
)
