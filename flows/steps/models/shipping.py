"""Put the models of finished runs into the box: the files that come with the project."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from flows.errors import BadInput
from flows.steps.data.datasets import location_of
from flows.steps.models.packaging import TrainedRun, trained_run
from flows.steps.models.shipped import ENDING, LARGEST, Array
from flows.steps.models.trust import measure
from flows.steps.results import stored_result
from flows.steps.training.fields import fields_of, names_of, part_of
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.evaluation.calibration import CALIBRATION_SAMPLES, calibrated
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.plans import Split
from lsm_core.reporting.comparison import row_name
from lsm_core.result import Result
from lsm_core.solvers.convergence import SolveFailed
from lsm_core.surrogates.predictor import Predictor
from lsm_core.surrogates.trust import Trust
from lsm_core.training.batches import Fields
from storage.datasets.reader import Dataset, open_dataset
from storage.location import Location, whole_or_nothing

CALIBRATION_SEED, HELD_OUT_SEED = 3_000_000, 4_000_000
"""Where the seeds of samples begin that no training, validation or test has."""
NETWORK = "model."
HALF = 6e4
"""Largest number that half precision holds, about."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How many samples of new seeds are solved for, and how long that may take, in seconds."""

    n_calibration: int = 1000
    n_held_out: int = 1000
    seconds: float = 900.0


def best_runs(root: Location, preset: str, model: str) -> dict[str, Result]:
    """Return the finished run of each problem with the least validation error."""
    best: dict[str, Result] = {}
    for identity in (root / "checkpoints").names():
        result = stored_result(root, identity)
        if result is None or (result.preset, result.model) != (preset, model) or result.source:
            continue
        before = best.get(result.benchmark)
        if before is None or _choice(result) < _choice(before):
            best[result.benchmark] = result
    return best


def _choice(result: Result) -> float:
    return result.validation.get(Result.ERROR, result.error)


def ship(
    identity: str, root: Location, folder: Path, effort: Effort, report: Callable[[str], None]
) -> dict[str, Any]:
    """Write the model of a finished run as the file of its problem, and return its card.

    It is calibrated as it is shipped, with weights in half precision, on the validation samples
    and on those of new seeds; what the card says of its error is measured on others still.
    """
    run = trained_run(identity, root)
    run = replace(run, predictor=Predictor(run.predictor.model, halved(run.predictor.weights)))
    problem, surrogate = run.benchmark, run.predictor.surrogate()
    experiment = Experiment.from_plain(run.result.settings)
    sizes = {str(split): size for split, size in experiment.data.split_sizes.items()}
    dataset = open_dataset(location_of(experiment.data, root)).first(sizes)
    extra = new_samples(problem, CALIBRATION_SEED, effort.n_calibration, effort.seconds)
    calibration = together([_stored(dataset, problem, "validation"), *extra])
    report(f"{problem.name}: calibrates on {len(calibration)} samples")
    in_order = problem.positions != "scattered points"
    trust = calibrated(
        surrogate, _stored(dataset, problem, "train"), calibration, in_order=in_order
    )
    others = new_samples(problem, HELD_OUT_SEED, effort.n_held_out, effort.seconds)
    held_out = together([_stored(dataset, problem, "test"), *others])
    card = _card(run, trust, held_out, len(calibration))
    part = dataset.part("test", names_of(problem))
    example = {name: values[None] for name, values in part[0].items()}
    content = _content(run, trust, example, card)
    if len(content) > LARGEST:
        raise BadInput(
            f"the model of {problem.name} takes {len(content) / 2**20:.1f} MiB, more than the "
            f"{LARGEST / 2**20:.0f} that a shipped one may have"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with whole_or_nothing(folder / f"{problem.name}{ENDING}") as partial:
        partial.write_bytes(content)
    return card


def halved(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights with those of the network rounded to half precision, all still float32."""
    return {name: _stored_as(name, value).float() for name, value in weights.items()}


def _stored_as(name: str, value: Tensor) -> Tensor:
    """Return what is stored of a weight; scales of fields may be of any size and stay exact."""
    fits = name.startswith(NETWORK) and bool((value.abs() < HALF).all())
    return value.half() if fits else value.float()


def new_samples(problem: Benchmark, first: int, n_samples: int, seconds: float) -> list[Fields]:
    """Return samples of consecutive seeds, solved for until there are enough or time is up."""
    parts, end, step = [], time.monotonic() + seconds, 20
    for start in range(first, first + n_samples, step):
        if time.monotonic() > end:
            break
        seeds = range(start, min(start + step, first + n_samples))
        solved = list(_solved(problem, seeds, end))
        if solved:
            names = names_of(problem)
            arrays = {name: np.stack([sample[name] for sample in solved]) for name in names}
            parts.append(fields_of(arrays, problem))
    return parts


def _solved(problem: Benchmark, seeds: range, end: float) -> Iterable[dict[str, Any]]:
    for seed in seeds:
        if time.monotonic() > end:
            return
        try:
            yield dict(problem.generate(seed))
        except SolveFailed:
            continue  # as when data are made: what has no solution is no sample


def together(parts: list[Fields]) -> Fields:
    """Return the samples of several parts as one."""
    return Fields(
        torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts])
    )


def _stored(dataset: Dataset, problem: Benchmark, split: Split) -> Fields:
    return fields_of(part_of(dataset, problem, split)[:CALIBRATION_SAMPLES], problem)


def _card(run: TrainedRun, trust: Trust, held_out: Fields, n_calibration: int) -> dict[str, Any]:
    """Return what there is to know of a model that comes with the project."""
    found = measure(run, trust, held_out)
    result, errors = run.result, found.errors
    plain = result.to_plain()
    plain["history"] = plain["history"][-1:]
    expected = trust.expected_errors(found.spreads)
    return {
        "trained_model": asdict(run.predictor.model),
        "data": result.settings["data"],
        "facts": run.facts,
        "result": plain,
        "title": f"{row_name(result)} on {run.benchmark.title}, preset {result.preset}",
        "trained_on": f"{result.n_train} samples, {result.epochs} epochs; dataset "
        f"{result.dataset.name}, sha256 {result.dataset.digest}",
        "calibrated_on": n_calibration,
        "held_out": {
            "samples": len(errors),
            "rel_l2": float(errors.mean()),
            "rel_l2_median": float(np.median(errors)),
            "rel_l2_deviation": float(errors.std(ddof=1)) if len(errors) > 1 else 0.0,
            "rel_l2_worst_tenth": float(np.sort(errors)[-max(1, len(errors) // 10) :].mean()),
            "stated_coverage": trust.coverage,
            "observed_coverage": float((errors <= expected).mean()),
            "stated_false_alarms": trust.false_alarms,
            "observed_false_alarms": float((found.strangeness > 1).mean()),
        },
        "fails": "on other grids, materials, speeds or viscosities than those of its data, which "
        "its input does not show; on inputs that it calls strange; most on its worst tenth",
    }


def _content(
    run: TrainedRun, trust: Trust, example: dict[str, Array], card: dict[str, Any]
) -> bytes:
    given = {v.name: example[v.name] for v in run.predictor.model.inputs}
    made = run.predictor(given)
    tensors = {
        f"weights.{name}": _stored_as(name, value) for name, value in run.predictor.weights.items()
    }
    for part, arrays in (("trust", trust.to_arrays()), ("given", given), ("made", made)):
        tensors |= {
            f"{part}.{name}": torch.tensor(np.asarray(values, np.float32))
            for name, values in arrays.items()
        }
    whole = {name: value.contiguous() for name, value in tensors.items()}
    return save(whole, {"card": json.dumps(card, sort_keys=True)})
