"""The operator that is trained: a model, applied as often as its problem asks for."""

from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.models.catalogue import ModelConfig, build_model
from lsm_core.problems.shape import ProblemShape


@runtime_checkable
class Problem(Protocol):
    """What of a benchmark decides its operator: a packaged model travels without the rest."""

    @property
    def shape(self) -> ProblemShape:
        """Return the size of the learning problem."""

    @property
    def n_steps(self) -> int:
        """Return how often a model is applied to its own output."""


def build_operator(model: ModelConfig, benchmark: Problem) -> nn.Module:
    """Return an untrained map `(batch, *space, n_inputs) -> (batch, *space, n_outputs)`.

    On problems that step through time the model predicts one step from its own predictions.
    """
    n_steps = benchmark.n_steps
    one_step = build_model(model, shape_of_one_step(benchmark.shape, n_steps))
    return one_step if n_steps == 1 else Rollout(one_step, n_steps)


def shape_of_one_step(shape: ProblemShape, n_steps: int) -> ProblemShape:
    """Return what the model maps in one of the steps that lead to all outputs."""
    return replace(shape, n_outputs=shape.n_outputs // n_steps)


class Rollout(nn.Module):
    """Applies a one-step model again and again to a window of frames, its own output included.

    Frames are channels, oldest first. Each step reads as many frames as there were at the start
    and predicts the next one. Gradients flow through all steps.
    """

    def __init__(self, model: nn.Module, n_steps: int) -> None:
        super().__init__()
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps}")
        self.model = model
        self.n_steps = n_steps

    def forward(
        self, history: Float[Tensor, "batch *space n_history"]
    ) -> Float[Tensor, "batch *space n_steps"]:
        """Return the frames that follow."""
        window, frames = history, []
        for _ in range(self.n_steps):
            frame = self.model(window)  # (batch, *space, 1)
            frames.append(frame)
            window = torch.cat([window[..., 1:], frame], dim=-1)
        return torch.cat(frames, dim=-1)
