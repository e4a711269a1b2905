"""Folders of finished runs without the training: models whose weights are drawn at random."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.operator import build_operator
from lsm_core.experiments.presets import experiment
from lsm_core.problems.fields import stack_channels
from lsm_core.training.normalization import fit_normalization
from lsm_core.training.surrogate import Surrogate
from storage.checkpoints import Checkpoints
from storage.location import Location

N_SAMPLES = 3


def cell(benchmark: str, model: str = "fno", seed: int = 0, **parameters: Any) -> Experiment:
    """Return a cell of the smoke preset, its problem changed by parameters."""
    made = experiment("smoke", benchmark, model, seed)
    changed = replace(made.data.benchmark, **parameters)
    return replace(made, data=replace(made.data, benchmark=changed), dataset="d" * 16)


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
    return Surrogate(build_operator(made), *statistics).eval()


def write_run(
    made: Experiment,
    root: Location,
    changes: Mapping[str, float] | None = None,
    suite: str = "benchmark-smoke",
) -> Surrogate:
    """Write the folder of a finished run, some values changed, and return the model it holds."""
    surrogate = untrained(made)
    for name, value in (changes or {}).items():
        surrogate.get_buffer(name).fill_(value)
    benchmark = made.data.benchmark
    checkpoints = Checkpoints(root / "checkpoints" / made.identity)
    weights = {f"model.{name}": value for name, value in surrogate.state_dict().items()}
    weights["adam.0.step"] = torch.ones(())
    checkpoints.save(4, save(weights, {"state": json.dumps({"epoch": 4})}))
    checkpoints.write_arrays("showcase", random_samples(benchmark, made.seed))
    checkpoints.write_result(
        {
            "identity": made.identity,
            "suite": suite,
            "protocol": made.protocol,
            "preset": made.preset,
            "benchmark": benchmark.name,
            "model": made.model_name,
            "seed": made.seed,
            "test": {"rel_l2": 0.25, "rel_l2_median": 0.2, "rel_l2_max": 0.5},
            "epochs": 4,
            "dataset": {"name": f"{benchmark.name}.zarr", "digest": "d" * 64},
            "code": made.code,
            "settings": made.describe(),
        }
    )
    return surrogate
