"""The solvers of the problems as rows of the board, each at the settings that its time allows."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
import torch
from torch import nn

from flows.steps.data.datasets import location_of
from flows.steps.results import keep_result, result_in
from flows.steps.training.fields import fields_of, names_of
from flows.steps.training.provenance import made_by
from flows.steps.training.showcase import SHOWN_SAMPLES, WORST_SAMPLES, chosen_arrays
from flows.steps.training.sources import hashed_syntax, reachable
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.coarser import difference, has_solver
from lsm_core.evaluation.evaluate import evaluate, sample_errors
from lsm_core.evaluation.samples import worst_samples
from lsm_core.experiments.equal_time import network_seconds, solved_in
from lsm_core.experiments.presets import model_config
from lsm_core.experiments.protocols import plan_from_plain
from lsm_core.names import ModelName
from lsm_core.reporting.board import SOLVER, Measured
from lsm_core.reporting.task import task_of
from lsm_core.result import DatasetName, Result
from lsm_core.training.batches import Fields
from storage.datasets.reader import Dataset, open_dataset
from storage.datasets.schema import environment
from storage.errors import DatasetIncomplete, NotADataset
from storage.location import Location
from storage.runs.checkpoints import Checkpoints

NETWORK: ModelName = "lsm_ours"
"""Whose time to predict a sample the solver is given."""
MADE_BY = ("lsm_core.benchmarks.coarser", "lsm_core.experiments.equal_time")


def measure_solvers(
    root: Location, runs: Sequence[Measured], report: Callable[[str], None]
) -> None:
    """Measure the solver of every task that lacks it, and keep it like a run.

    It needs the data of the task in the store, made from seeds by a solver of ours: published
    files and those that somebody brought have none.
    """
    for run in _one_a_task(runs):
        plan = plan_from_plain(run.settings["data"], run.preset)
        problem, name = plan.benchmark, task_of(run).name
        if run.origin != "generated" or not has_solver(problem):
            report(f"{name}: no solver of ours made its samples")
            continue
        try:
            dataset = open_dataset(location_of(plan, root))
        except (NotADataset, DatasetIncomplete, FileNotFoundError) as error:
            report(f"{name}: its data is not in the store: {error}")
            continue
        if dataset.digest != run.dataset.digest:
            report(f"{name}: its data was made anew since")
            continue
        checkpoints = Checkpoints(root / "checkpoints" / _identity(run))
        if result_in(checkpoints) is None:
            sizes = {str(split): size for split, size in plan.split_sizes.items()}
            made = _measure(run, problem, dataset.first(sizes), checkpoints)
            report(f"{name}: {made.settings['model']['settings']}, error {made.error:.4g}")


def _one_a_task(runs: Sequence[Measured]) -> Iterator[Result]:
    found = {task_of(run.result).id: run.result for run in runs if run.result.model != SOLVER}
    yield from found.values()


def _identity(run: Result) -> str:
    """Return what the row of a run's task is kept under; other sources make another one."""
    named = {"solver": task_of(run).id, "code": hashed_syntax(reachable(MADE_BY))}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]


def _measure(run: Result, problem: Benchmark, dataset: Dataset, checkpoints: Checkpoints) -> Result:
    """Solve the test samples of a task, and keep what came of it."""
    arrays = dataset.part("test", [*names_of(problem), "seed"])[:]
    seeds = [int(seed) for seed in arrays["seed"]]
    fields = fields_of(arrays, problem)
    budget = network_seconds(
        model_config(run.preset, problem.name, NETWORK),  # type: ignore[arg-type]
        problem,
        fields.inputs,
    )
    inputs = {each.name: arrays[each.name] for each in problem.with_role("input")}
    solved = solved_in(budget, problem, inputs, seeds)
    # What is measured of a model is measured of these: a model that returns what it is given.
    parts = [Fields(torch.from_numpy(solved.predicted), fields.targets)]
    errors = {name: v.numpy() for name, v in sample_errors(_AsGiven(), parts, len(seeds)).items()}
    identity = _identity(run)
    for name, samples in (
        ("showcase", list(range(min(SHOWN_SAMPLES, len(seeds))))),
        ("worst", worst_samples(errors, WORST_SAMPLES)),
    ):
        chosen = chosen_arrays(problem, dataset, samples, solved.predicted[samples])
        checkpoints.write_arrays(name, chosen)
    checkpoints.write_arrays("errors", {**errors, "identity": np.array(identity)})
    result = Result(
        identity=identity,
        protocol=task_of(run).id,
        study="benchmark",
        preset=run.preset,
        origin=run.origin,
        benchmark=run.benchmark,
        resolution=run.resolution,
        model=SOLVER,
        seed=0,
        validation={},
        test=evaluate(_AsGiven(), parts, len(seeds)),
        parameters=0,
        mean_prediction=run.mean_prediction,
        seconds_per_epoch=0.0,
        epochs=0,
        n_train=run.n_train,  # of the task; it uses none
        updates=0,
        samples_seen=0,
        flops=0.0,
        dataset=DatasetName(name=dataset.location.name, digest=dataset.digest),
        code=hashed_syntax(reachable(MADE_BY)),
        settings={
            **run.settings,
            "model_name": SOLVER,
            "model": {
                "settings": difference(problem, solved.settings),
                "seconds_a_sample": solved.seconds,
                "network": NETWORK,
                "network_seconds_a_sample": budget,
            },
        },
        environment={**environment(), "device": "cpu", **made_by()},
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    keep_result(checkpoints, result)
    return result


class _AsGiven(nn.Module):
    """Returns what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values
