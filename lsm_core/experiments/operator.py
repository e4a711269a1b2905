"""The operator that an experiment trains: its model, applied as often as its problem asks for."""

from dataclasses import replace

from torch import nn

from lsm_core.experiments.experiment import Experiment
from lsm_core.models.catalogue import build_model
from lsm_core.training.rollout import Rollout


def build_operator(experiment: Experiment) -> nn.Module:
    """Return an untrained map `(batch, *space, n_inputs) -> (batch, *space, n_outputs)`.

    On problems that step through time the model predicts one step from its own predictions.
    """
    shape, n_steps = experiment.data.benchmark.shape, experiment.data.benchmark.n_steps
    if n_steps == 1:
        return build_model(experiment.model, shape)
    one_step = replace(shape, n_outputs=shape.n_outputs // n_steps)
    return Rollout(build_model(experiment.model, one_step), n_steps)
