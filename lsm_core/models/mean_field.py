"""The mean of the training targets at every point, whatever the input: the least to beat."""

from dataclasses import dataclass

import torch
from torch import nn

from lsm_core.layers.shapes import Inputs, Outputs
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.models.fitted import FittedModel, Pairs, assign
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class MeanFieldConfig:
    """There is nothing to choose about a mean; the field is there for tables of sizes."""

    width: int = 1


class MeanField(FittedModel):
    """One field for all inputs."""

    def __init__(self, config: MeanFieldConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(*shape.space, shape.n_outputs))

    def fit(self, parts: Pairs) -> None:
        """Take the mean of the targets."""
        total, n_samples = torch.zeros((), dtype=torch.float64), 0
        for _, targets in parts:
            total = total + targets.double().sum(0)
            n_samples += len(targets)
        assign(self.mean, total / max(1, n_samples))

    def forward(self, field: Inputs) -> Outputs:
        """Return the mean, once a sample."""
        return self.mean.expand(len(field), *self.mean.shape).clone()


def preset(task: Task) -> MeanFieldConfig:
    """Return the same in every preset."""
    return MeanFieldConfig()


MODEL = ModelEntry(
    config=MeanFieldConfig, network=MeanField, preset=preset, takes_points=True, is_fitted=True
)
