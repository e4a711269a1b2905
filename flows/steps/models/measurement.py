"""What champion and challenger are compared by: errors on locked and new samples, parts and costs.

pair = measure(champion_model, challenger_model, dataset, root)
decide(pair.champion, pair.challenger, rule, pair.control)
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import torch

from flows.errors import BadInput
from flows.steps.data.added_samples import held_out
from flows.steps.data.datasets import plan_generation
from flows.steps.models.packaging import PackagedModel, TrainedRun, trained_run
from flows.steps.results import stored_result
from flows.steps.training.cells import bind
from flows.steps.training.fields import PartsOfStore, fields_of, part_of
from lsm_core.evaluation.evaluate import relative_errors
from lsm_core.evaluation.promotion import Measured
from lsm_core.experiments.experiment import Experiment, Start
from lsm_core.experiments.plans import AddedSamples, DataPlan
from lsm_core.experiments.protocols import PROTOCOLS
from lsm_core.training.batches import Fields
from storage.datasets.reader import Dataset, open_dataset
from storage.errors import StorageError
from storage.location import Location
from storage.runs.leases import Leases

EVALUATION_BATCH = 100
TRIES = 5
"""How often a prediction is timed; the shortest counts, which other work of the machine spoils
least."""
SEEDS_A_TEST = 4
"""New training seeds for which one new sample to test on is made."""

Values = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two models, measured on the same samples."""

    champion: Measured
    challenger: Measured
    control: Values | None = None
    """Errors on the locked samples of the champion trained on without the new samples."""


def measure(
    champion: PackagedModel,
    challenger: PackagedModel,
    dataset: Dataset,
    root: Location,
    *,
    same_samples: bool = True,
) -> Pair:
    """Return what is measured of two models on the locked test samples and on new ones.

    `same_samples` says that figures kept with their runs are of the locked samples, too: those of
    the boundary and of channels are then taken from there.
    """
    new = _new_samples(champion, challenger, root)
    before, after = (
        Measured(
            locked=sample_errors(model, dataset),
            new=_errors(model, new.split(EVALUATION_BATCH) if new else []),
            parts=_parts(model) if same_samples else {},
            costs={"parameters": _n_parameters(model)},
        )
        for model in (champion, challenger)
    )
    if champion.predictor.model != challenger.predictor.model:
        times = _seconds(champion, challenger, dataset)
        before, after = (
            replace(each, costs={**each.costs, "seconds a sample": seconds})
            for each, seconds in zip((before, after), times, strict=True)
        )
    control = _control(champion, root)
    errors = None if control is None else sample_errors(control, dataset)
    return Pair(champion=before, challenger=after, control=errors)


def sample_errors(model: PackagedModel, dataset: Dataset) -> Values:
    """Return the relative L2 error of a model on every test sample of a dataset.

    The fields are those on which the model was trained; a dataset on another grid has to be one
    that the model supports.
    """
    sizes = dict(dataset.to_xarray().sizes)
    grid = {axis: int(sizes[axis]) for axis in model.benchmark.space}
    benchmark = model.benchmark
    if benchmark.shape.space != tuple(grid.values()):
        benchmark = benchmark.at_resolution(next(iter(grid.values())))
    parts = PartsOfStore(part_of(dataset, benchmark, "test"), benchmark)
    return _errors(model, parts, grid)


def control_experiment(result_settings: Any, seed: int, identity: str) -> Experiment:
    """Return the champion trained on, on its own samples: what more epochs alone give."""
    experiment = Experiment.from_plain(result_settings, seed)
    training = experiment.training
    if training.selection == "best_test":  # the test samples will judge it
        training = replace(training, selection="last")
    return replace(experiment, training=training, start=Start(source=identity))


def _control(champion: PackagedModel, root: Location) -> PackagedModel | None:
    """Return the champion trained on, if that was done by the sources of today."""
    if not isinstance(champion, TrainedRun):
        return None
    result = champion.result
    with suppress(BadInput, ValueError, KeyError, TypeError):
        control = bind(control_experiment(result.settings, result.seed, result.identity))
        if stored_result(root, control.identity) is not None:
            return trained_run(control.identity, root)
    return None


def _errors(
    model: PackagedModel, parts: Iterable[Fields], grid: dict[str, int] | None = None
) -> Values:
    errors = relative_errors(model.predictor.surrogate(grid), parts, EVALUATION_BATCH)
    return errors.double().numpy()


def _parts(model: PackagedModel) -> dict[str, float]:
    """Return the mean errors of the boundary, of channels and of steps, as far as they are kept."""
    named = {
        name.removeprefix("rel_l2_").replace("_", " "): float(value)
        for name, value in model.facts["test"].items()
        if name.startswith(("rel_l2_boundary", "rel_l2_channel_", "rel_l2_step_"))
    }
    return {"the boundary" if name == "boundary" else name: each for name, each in named.items()}


def _n_parameters(model: PackagedModel) -> float:
    return float(sum(each.numel() for each in model.predictor.surrogate().parameters()))


def _seconds(
    champion: PackagedModel, challenger: PackagedModel, dataset: Dataset
) -> tuple[float, float]:
    """Return how long each takes for a sample; in turns, so that both bear the same load."""
    inputs = fields_of(part_of(dataset, champion.benchmark, "test")[:1], champion.benchmark).inputs
    models = [each.predictor.surrogate() for each in (champion, challenger)]
    best = [float("inf")] * 2
    with torch.no_grad():
        for _ in range(TRIES + 1):
            for number, model in enumerate(models):
                began = perf_counter()
                model(inputs)
                best[number] = min(best[number], perf_counter() - began)
    return best[0], best[1]


def _new_samples(
    champion: PackagedModel, challenger: PackagedModel, root: Location
) -> Fields | None:
    """Return samples of the kind that is new to the challenger and that nobody was trained on."""
    known = {each["digest"] for each in champion.facts["added"]}
    added = [AddedSamples(**each) for each in challenger.facts["added"]]
    files = [each for each in added if each.digest not in known]
    arrays: dict[str, Values] | None = None
    with suppress(FileNotFoundError, StorageError):
        arrays = held_out(files, challenger.benchmark, root)
    fresh = _fresh_samples(champion, challenger, root)
    if fresh:
        names = list(fresh)
        arrays = {n: np.concatenate([arrays[n], fresh[n]]) if arrays else fresh[n] for n in names}
    if arrays is None or not len(next(iter(arrays.values()))):
        return None
    return fields_of(arrays, challenger.benchmark)


def _fresh_samples(
    champion: PackagedModel, challenger: PackagedModel, root: Location
) -> dict[str, Values]:
    """Return samples of test seeds after the locked ones, one for every few new training seeds."""
    if not isinstance(challenger, TrainedRun) or challenger.facts["origin"] != "generated":
        return {}
    before, after = (
        model.facts["n_train"] - sum(each["n_samples"] for each in model.facts["added"])
        for model in (champion, challenger)
    )
    n_fresh = (after - before) // SEEDS_A_TEST
    if n_fresh < 1:
        return {}
    plan = Experiment.from_plain(challenger.result.settings).data
    protocol = PROTOCOLS[challenger.result.benchmark]  # type: ignore[index]
    first = protocol.plans[challenger.result.preset].n_train
    n_so_far = max(n_fresh, (after - first) // SEEDS_A_TEST)
    dataset = _made(
        DataPlan(
            benchmark=plan.benchmark,
            n_train=0,
            n_validation=0,
            n_test=plan.n_test + n_so_far,
            samples_per_block=plan.samples_per_block,
            keep_each_sample=plan.keep_each_sample,
        ),
        root,
    )
    part = part_of(dataset, plan.benchmark, "test")
    return part[len(part) - n_fresh :]


def _made(plan: DataPlan, root: Location) -> Dataset:
    job = plan_generation(plan, root)
    with Leases(root / "claims").hold(f"dataset-{job.schema.recipe}"):
        for index in job.begin():
            job.generate_block(index)
        job.finish()
    return open_dataset(job.location)
