"""The last frame that is known, for every frame that is asked for: nothing changes in time."""

from dataclasses import dataclass

import torch
from torch import nn

from lsm_core.layers.shapes import Inputs, Outputs
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.models.fitted import FittedModel, Pairs
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class LastFrameConfig:
    """There is nothing to choose about a copy; the field is there for tables of sizes."""

    width: int = 1


class LastFrame(FittedModel):
    """The last channel of the input, as often as there are outputs."""

    def __init__(self, config: LastFrameConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.n_outputs = shape.n_outputs
        self.gain = nn.Parameter(torch.ones(1))
        """What the frame is multiplied by: one."""

    def fit(self, parts: Pairs) -> None:
        """Do nothing: a copy has nothing to learn."""

    def forward(self, field: Inputs) -> Outputs:
        """Return the last frame for every step."""
        return (self.gain * field[..., -1:]).expand(*field.shape[:-1], self.n_outputs)


def preset(task: Task) -> LastFrameConfig:
    """Return the same in every preset."""
    return LastFrameConfig()


MODEL = ModelEntry(
    config=LastFrameConfig,
    network=LastFrame,
    preset=preset,
    needs_history=True,
    takes_points=True,
    is_fitted=True,
)
