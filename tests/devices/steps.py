"""A training step and an evaluation of models on a device that does not exist, by our own loop.

    python -m tests.devices.steps                                # every model, float32
    python -m tests.devices.steps --precision bfloat16 --benchmarks elasticity_p burgers
    python -m tests.devices.steps --models lsm --verbose         # by line and operator
    python -m tests.devices.steps --store                        # new limits of launches

One line of JSON for each model and benchmark. Without `--benchmarks` each model takes Darcy flow,
or Navier-Stokes if it needs a history.
"""

import argparse
import json
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from lsm_core.experiments.presets import experiment
from lsm_core.layers import constants
from lsm_core.layers.head import Head
from lsm_core.models.lsm import Lsm, release_form
from lsm_core.names import BenchmarkName, ModelName, Precision, PresetName
from lsm_core.problems.shape import ProblemShape
from lsm_core.surrogates.normalization import Normalization
from lsm_core.surrogates.operator import build_operator
from lsm_core.surrogates.surrogate import Surrogate, predict
from lsm_core.training.batches import Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.loop import train_step
from lsm_core.training.state import start_training
from tests.devices.cases import TRAINED, cases
from tests.devices.fake_device import DEVICE, PROJECT, Seen, Watch, fake_device

LIMITS = Path(__file__).with_name("launches.json")


def seen_of_model(
    preset: PresetName, benchmark: BenchmarkName, model: ModelName, precision: Precision, batch: int
) -> tuple[Seen, Seen]:
    """Return what a training step and an evaluation of a model do."""
    chosen = experiment(preset, benchmark, model)
    operator = build_operator(chosen.model, chosen.benchmark)  # for real: it looks at values
    config = replace(chosen.training, precision=precision)
    return seen_of_step(operator, chosen.benchmark.shape, config, batch)


def seen_of_release_form(precision: Precision) -> tuple[Seen, Seen]:
    """Return what the released LSM does on 64 x 64 points, one sample."""
    shape = ProblemShape(space=(64, 64), n_inputs=1, n_outputs=1)
    return seen_of_step(Lsm(release_form(), shape), shape, TrainingConfig(precision=precision), 1)


def seen_of_step(
    operator: nn.Module, shape: ProblemShape, config: TrainingConfig, batch_size: int
) -> tuple[Seen, Seen]:
    """Return what a training step and an evaluation do, the second of each kind."""
    constants.forget()
    with fake_device():
        return _seen_on_device(operator, shape, config, batch_size)


def _seen_on_device(
    operator: nn.Module, shape: ProblemShape, config: TrainingConfig, batch_size: int
) -> tuple[Seen, Seen]:
    scales = [
        (torch.zeros(*shape.space, n), torch.ones(*shape.space, n))
        for n in (shape.n_inputs, shape.n_outputs)
    ]
    surrogate = Surrogate(operator, *(Normalization(*scale) for scale in scales)).to(DEVICE)
    state = start_training(surrogate, config, n_batches=10)
    batch = Fields(
        torch.rand(batch_size, *shape.space, shape.n_inputs),
        torch.rand(batch_size, *shape.space, shape.n_outputs),
    )
    for _ in range(2):  # the second counts: the optimiser has its state, constants are there
        surrogate.train()
        with Watch() as trained:
            train_step(state, batch, config)
    for _ in range(2):
        with Watch() as evaluated:
            predict(surrogate, batch.inputs, batch_size)
    return trained.seen, evaluated.seen


@contextmanager
def planted(fault: str | None) -> Iterator[None]:
    """Let every head read a value, add a tensor of the host, or multiply by a float64."""
    forward = Head.forward

    def faulty(self: Head, features: Tensor, before: nn.Linear | None = None) -> Tensor:
        result = forward(self, features, before)
        if fault == "item":
            result = result * result.sum().item()
        elif fault == "host":
            result = result + torch.ones(result.shape[-1])
        elif fault == "float64":
            result = result * torch.ones(1, dtype=torch.float64, device=result.device)
        return result

    with patch.object(Head, "forward", faulty):
        yield


def described(seen: Seen, evaluated: Seen) -> dict[str, Any]:
    """Return counts and, where there should be none, places."""
    return {
        "launches": seen.launches,
        "uploads": seen.uploads.total(),
        "waits": dict(seen.waits),
        "on_host": dict(seen.on_host),
        "products": dict(seen.products),
        "gigabytes": round(seen.bytes / 1e9, 2),
        "evaluation": {
            "launches": evaluated.launches,
            "uploads": evaluated.uploads.total(),
            "downloads": evaluated.downloads.total(),
            "waits": dict(evaluated.waits),
        },
    }


def failure(error: Exception) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    places = [
        f"{frame.filename.rpartition(PROJECT)[2]}:{frame.lineno}"
        for frame in frames
        if PROJECT in frame.filename
    ]
    first_line = str(error).splitlines()[0] if str(error) else ""
    return {"error": f"{type(error).__name__}: {first_line} at {' > '.join(places[-3:])}"}


def main() -> int:
    options = _options()
    warnings.simplefilter("ignore")
    limits: dict[str, dict[str, int]] = {}
    failed = False
    wanted = product(
        cases(options.models, options.benchmarks), options.precision, options.plant or [None]
    )
    for (model, benchmark), precision, fault in wanted:
        case = {"model": model, "benchmark": benchmark, "precision": precision, "fault": fault}
        try:
            with planted(fault):
                seen = seen_of_model(options.preset, benchmark, model, precision, options.batch)
            found = described(*seen)
            limits.setdefault(model, {})[precision] = found["launches"]
            if options.verbose:
                found["operators"] = seen[0].operators.most_common(40)
                found["uploaded"] = dict(seen[0].uploads)
        except Exception as error:
            found, failed = failure(error), True
        print(json.dumps(case | found), flush=True)
    if options.release_form:
        seen = seen_of_release_form("float32")
        case = {"model": "lsm", "benchmark": "64 x 64", "precision": "float32", "fault": None}
        print(json.dumps(case | described(*seen) | {"operators": seen[0].operators}))
    if options.store:
        LIMITS.write_text(json.dumps(limits, indent=2) + "\n")
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="smoke")
    parser.add_argument("--precision", nargs="+", default=["float32"])
    parser.add_argument("--benchmarks", nargs="+", default=[])
    parser.add_argument("--models", nargs="*", default=TRAINED)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--plant", nargs="+", choices=["item", "host", "float64"])
    parser.add_argument("--release-form", action="store_true", help="LSM on 64 x 64, too")
    parser.add_argument("--store", action="store_true", help="keep the launches as new limits")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
