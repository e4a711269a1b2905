"""Proper orthogonal decomposition with a neural network (Hesthaven and Ubbiali, JCP 2018).

Inputs and targets are written in their leading principal directions, and a small dense network maps
the coordinates c of one to those of the other, each in parts of how far it varies:

    u(a) = mean + sum over directions k of s_k f_k(c(a)) d_k

It is trained on the coordinates alone, where a sample is a few dozen numbers: thousands of steps
take seconds, on whatever mesh. Of parameters that are the same at all points nothing is lost.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.shapes import Inputs, Outputs
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.models.fitted import FittedModel, Pairs, assign, principal_directions, stacked
from lsm_core.problems.shape import ProblemShape

BATCH = 16
RATE, DECAY, LONGEST_GRADIENT = 3e-3, 1e-4, 0.1
"""The largest rate of one cycle of AdamW, and where gradients are clipped."""


@dataclass(frozen=True, kw_only=True)
class PodNnConfig:
    """How many directions are kept of inputs and targets, and the size of the network.

    `width` is that of its `n_layers` hidden layers; it is trained for `n_steps`.
    """

    width: int = 256
    n_layers: int = 3
    n_input_modes: int = 64
    n_output_modes: int = 64
    n_steps: int = 10_000

    def __post_init__(self) -> None:
        sizes = ("width", "n_layers", "n_input_modes", "n_output_modes", "n_steps")
        check_at_least(1, self, *sizes)


class PodNn(FittedModel):
    """A network between principal directions of whole fields, tied to their grid."""

    def __init__(self, config: PodNnConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.n_steps, self.result = config.n_steps, (*shape.space, shape.n_outputs)
        n_inputs, n_outputs = prod(shape.space) * shape.n_inputs, prod(self.result)
        n_read, n_told = min(config.n_input_modes, n_inputs), min(config.n_output_modes, n_outputs)
        self.input_mean = nn.Parameter(torch.zeros(n_inputs))
        self.input_modes = nn.Parameter(torch.zeros(n_inputs, n_read))
        self.network = nn.Sequential()
        for before, after in pairwise((n_read, *[config.width] * config.n_layers)):
            self.network += nn.Sequential(nn.Linear(before, after), nn.GELU())
        self.network.append(nn.Linear(config.width, n_told))
        self.output_modes = nn.Parameter(torch.zeros(n_told, n_outputs))
        self.output_mean = nn.Parameter(torch.zeros(n_outputs))

    def fit(self, parts: Pairs) -> None:
        """Find the directions, then train the network between the coordinates."""
        inputs, targets = stacked(parts)
        input_mean, output_mean = inputs.mean(0), targets.mean(0)
        modes, given = principal_directions(inputs - input_mean, self.input_modes.shape[1])
        directions, wanted = principal_directions(targets - output_mean, self.output_modes.shape[0])
        # Inputs keep their proportions, or noise would count as much as what matters.
        size = float(given.square().mean(0).max().sqrt()) if given.numel() else 1.0
        spread = wanted.square().mean(0).sqrt()
        assign(self.input_mean, input_mean)
        assign(self.input_modes, modes / size)
        assign(self.output_modes, (directions * spread).T)
        assign(self.output_mean, output_mean)
        shares = 1 / targets.norm(dim=1, keepdim=True).clamp_min(1e-30)
        missing = self.input_modes.shape[1] - given.shape[1]
        places = nn.functional.pad(given / size, (0, missing))
        as_fields = self.output_mean
        self._train(*(each.to(as_fields) for each in (places, wanted * shares, spread * shares)))

    def _train(
        self,
        places: Float[Tensor, "samples read"],
        wanted: Float[Tensor, "samples told"],
        scales: Float[Tensor, "samples told"],
    ) -> None:
        """Bring the error of the fields, in parts of their norms, to its least."""
        parameters = list(self.network.parameters())
        optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=DECAY)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=self.n_steps)
        order = torch.Generator().manual_seed(0)
        waiting: list[Tensor] = []
        for _ in range(self.n_steps):
            waiting = waiting or list(torch.randperm(len(places), generator=order).split(BATCH))
            some = waiting.pop().to(places.device)
            found = self.network(places[some])[:, : wanted.shape[1]]
            optimizer.zero_grad()
            (found * scales[some] - wanted[some]).norm(dim=1).mean().backward()
            nn.utils.clip_grad_norm_(parameters, LONGEST_GRADIENT)
            optimizer.step()
            cycle.step()

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        places = (field.flatten(1) - self.input_mean) @ self.input_modes
        fields = self.network(places) @ self.output_modes + self.output_mean
        return fields.view(-1, *self.result)


def preset(task: Task) -> PodNnConfig:
    """Return the network of a preset."""
    return task.choose(
        smoke=PodNnConfig(width=64, n_input_modes=16, n_output_modes=16, n_steps=500),
        quick=PodNnConfig(n_steps=3000),
        published=PodNnConfig(),
    )


MODEL = ModelEntry(
    config=PodNnConfig, network=PodNn, preset=preset, takes_points=True, is_fitted=True
)
