"""Trained models of finished runs, rebuilt from what their folders hold."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from flows.errors import BadInput
from flows.steps.results import result_in
from flows.steps.training.workplace import selected_weights
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.experiments.experiment import Experiment
from lsm_core.result import Result
from lsm_core.surrogates.predictor import Predictor, TrainedModel
from storage.errors import translated
from storage.location import Location
from storage.runs.checkpoints import Checkpoints


@dataclass(frozen=True)
class TrainedRun:
    """A finished run: its result, its problem, its model and one input for it."""

    result: Result
    benchmark: Benchmark
    predictor: Predictor
    example: dict[str, np.ndarray[Any, np.dtype[Any]]]


def trained_run(identity: str, root: Location) -> TrainedRun:
    """Return the model that a run has trained; BadInput if there is none."""
    checkpoints = Checkpoints(root / "checkpoints" / identity)
    result = result_in(checkpoints)
    if result is None:
        raise BadInput(
            f"there is no finished run {identity} in {root}; `lsm train` makes one, and every "
            "report names those there are"
        )

    def unusable(error: Exception) -> BadInput:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        return BadInput(f"the model of run {identity} cannot be rebuilt: {why}")

    with translated(KeyError, ValueError, TypeError, FileNotFoundError, into=unusable):
        experiment = Experiment.from_plain(result.settings)
        shown = checkpoints.arrays("showcase")
        example = {v.name: shown[v.name][:1] for v in experiment.benchmark.with_role("input")}
        predictor = Predictor(trained_model(experiment), selected_weights(checkpoints))
        return TrainedRun(result, experiment.benchmark, predictor, example)


def trained_model(experiment: Experiment) -> TrainedModel:
    """Return what has to be known of an experiment's model beside its weights."""
    benchmark = experiment.benchmark
    return TrainedModel(
        benchmark=benchmark.name,
        model_name=experiment.model_name,
        model=experiment.model,
        space=benchmark.space,
        n_steps=benchmark.n_steps,
        inputs=benchmark.with_role("input"),
        targets=benchmark.with_role("target"),
    )
