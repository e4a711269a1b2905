"""Trained models of finished runs, rebuilt from what their folders hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flows.errors import BadInput
from flows.steps.training import selected_weights
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.catalogue import BENCHMARKS
from lsm_core.configuration import from_plain
from lsm_core.names import ModelName
from lsm_core.training.predictor import Predictor, TrainedModel, model_from_plain
from storage.checkpoints import Checkpoints
from storage.location import Location


@dataclass(frozen=True)
class TrainedRun:
    """A finished run: its result as plain data, its problem, its model and one input for it."""

    result: dict[str, Any]
    benchmark: Benchmark
    predictor: Predictor
    example: dict[str, np.ndarray[Any, np.dtype[Any]]]


def trained_run(identity: str, root: Location) -> TrainedRun:
    """Return the model that a run has trained; BadInput if there is none."""
    checkpoints = Checkpoints(root / "checkpoints" / identity)
    result = checkpoints.result()
    if result is None:
        raise BadInput(
            f"there is no finished run {identity} in {root}; `lsm train` makes one, and every "
            "report names those there are"
        )
    try:
        benchmark = benchmark_of(result["settings"]["data"])
        model = trained_model(benchmark, result["settings"])
        shown = checkpoints.arrays("showcase")
        example = {v.name: shown[v.name][:1] for v in benchmark.with_role("input")}
        predictor = Predictor(model, selected_weights(checkpoints))
        return TrainedRun(result, benchmark, predictor, example)
    except (KeyError, ValueError, FileNotFoundError) as error:
        told = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise BadInput(f"the model of run {identity} cannot be rebuilt: {told}") from error


def trained_model(benchmark: Benchmark, settings: Mapping[str, Any]) -> TrainedModel:
    """Return what an experiment's settings, as plain data, say of its model."""
    name: ModelName = settings["model_name"]
    return TrainedModel(
        benchmark=benchmark.name,
        model_name=name,
        model=model_from_plain(name, settings["model"]),
        space=benchmark.space,
        n_steps=benchmark.n_steps,
        inputs=benchmark.with_role("input"),
        targets=benchmark.with_role("target"),
    )


def benchmark_of(data: Mapping[str, Any]) -> Benchmark:
    """Return the problem that a data plan, as plain data, is of; ValueError if it is unknown."""
    name = data["benchmark"]
    if name not in BENCHMARKS:
        raise ValueError(f"there is no benchmark {name!r}; known are {', '.join(BENCHMARKS)}")
    return from_plain(BENCHMARKS[name], data["parameters"])
