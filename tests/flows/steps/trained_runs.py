"""Folders of finished runs without the training: models whose weights are drawn at random."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from flows.steps.results import keep_result
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.experiments.experiment import BoundExperiment, Experiment
from lsm_core.experiments.presets import experiment
from lsm_core.problems.fields import stack_channels
from lsm_core.result import DatasetName, Epoch, Result
from lsm_core.surrogates.normalization import fit_normalization
from lsm_core.surrogates.operator import build_operator
from lsm_core.surrogates.surrogate import Surrogate
from storage.location import Location
from storage.runs.checkpoints import Checkpoints

N_SAMPLES = 3


def cell(benchmark: str, model: str = "fno", seed: int = 0, **parameters: Any) -> BoundExperiment:
    """Return a cell of the smoke preset, its problem changed by parameters."""
    made = experiment("smoke", benchmark, model, seed)
    changed = replace(made.data.benchmark, **parameters)
    made = replace(made, data=replace(made.data, benchmark=changed))
    return BoundExperiment(**vars(made), dataset="d" * 16, code="")


def random_samples(benchmark: Benchmark, seed: int = 0) -> dict[str, np.ndarray]:
    """Return inputs and targets in (0, 1), as many as a showcase has."""
    random = np.random.default_rng(seed)
    return {
        v.name: random.random((N_SAMPLES, *v.shape), dtype=np.float32)
        for role in ("input", "target")
        for v in benchmark.with_role(role)
    }


def untrained(made: Experiment) -> Surrogate:
    """Return the model of a cell with normalisations of random samples."""
    torch.manual_seed(made.seed)
    benchmark = made.data.benchmark
    arrays = random_samples(benchmark, made.seed)
    space = dict(zip(benchmark.space, benchmark.shape.space, strict=True))
    fields = [
        torch.tensor(stack_channels(arrays, benchmark.with_role(role), space))
        for role in ("input", "target")
    ]
    schemes = made.training.input_normalization, made.training.target_normalization
    statistics = map(fit_normalization, schemes, fields)
    return Surrogate(build_operator(made.model, made.data.benchmark), *statistics).eval()


def _epoch(epoch: int) -> Epoch:
    return Epoch(
        epoch=epoch,
        train=1 / epoch,
        validation=1.2 / epoch,
        learning_rate=1e-3,
        seconds=2.0,
        samples_per_second=8.0,
        peak_bytes=10**8,
        at=1_767_225_600_000 + 2000 * epoch,
    )


def write_run(
    made: BoundExperiment,
    root: Location,
    changes: Mapping[str, float] | None = None,
    study: str = "benchmark",
) -> Surrogate:
    """Write the folder of a finished run, some values changed, and return the model it holds."""
    surrogate = untrained(made.experiment)
    for name, value in (changes or {}).items():
        surrogate.get_buffer(name).fill_(value)
    benchmark = made.data.benchmark
    checkpoints = Checkpoints(root / "checkpoints" / made.identity)
    weights = {f"model.{name}": value for name, value in surrogate.state_dict().items()}
    weights["adam.0.step"] = torch.ones(())
    checkpoints.save(4, save(weights, {"state": json.dumps({"epoch": 4})}))
    checkpoints.write_arrays("showcase", random_samples(benchmark, made.seed))
    result = Result(
        **vars(made.outcome(study)),
        validation={},
        test={"rel_l2": 0.25, "rel_l2_median": 0.2, "rel_l2_max": 0.5},
        parameters=sum(parameter.numel() for parameter in surrogate.parameters()),
        mean_prediction=1.0,
        seconds_per_epoch=0.5,
        epochs=4,
        history=tuple(map(_epoch, range(1, 5))),
        n_train=made.data.split_sizes["train"],
        dataset=DatasetName(name=f"{benchmark.name}.zarr", digest="d" * 64),
        code=made.code,
        settings=made.experiment.to_plain(),
        environment={},
        finished="2026-11-17T12:00:00+00:00",
    )
    keep_result(checkpoints, result)
    return surrogate
