"""The operator that is trained: a model, applied as often as its problem asks for."""

from dataclasses import replace
from typing import Protocol, runtime_checkable

from torch import nn

from lsm_core.models.catalogue import MODELS, ModelConfig, build_model, model_name
from lsm_core.problems.shape import ProblemShape
from lsm_core.surrogates.rollout import Rollout


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

    On problems that step through time the model predicts one step from its own predictions, unless
    it is a classical one, which predicts all of them at once.
    """
    n_steps = n_applications(model, benchmark)
    one_step = build_model(model, shape_of_one_step(benchmark.shape, n_steps))
    return one_step if n_steps == 1 else Rollout(one_step, n_steps)


def n_applications(model: ModelConfig, benchmark: Problem) -> int:
    """Return how often a model is applied on a problem."""
    return 1 if MODELS[model_name(model)].is_fitted else benchmark.n_steps


def shape_of_one_step(shape: ProblemShape, n_steps: int) -> ProblemShape:
    """Return what the model maps in one of the steps that lead to all outputs."""
    return replace(shape, n_outputs=shape.n_outputs // n_steps)
