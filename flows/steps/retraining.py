"""What a retraining trains: the champion further, on samples that no model has used before.

    base = champion_experiment(benchmark, root, uri)        the champion, and the data so far
    experiment = with_more_seeds(base, 64)                  what to train; or with_files(...),
                                                            with_dataset(...)

When it is trained and registered, `flows.steps.judgement` decides whether it becomes the champion.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flows.errors import BadInput
from flows.steps.added_samples import take_dataset
from flows.steps.surrogates import benchmark_of
from lsm_core.configuration import from_plain
from lsm_core.experiments.data_plans import data_plan
from lsm_core.experiments.experiment import Experiment, Start
from lsm_core.experiments.extended_plan import AddedSamples, ExtendedPlan, extended
from lsm_core.experiments.official_plan import OfficialPlan
from lsm_core.names import BenchmarkName
from lsm_core.training.config import TrainingConfig
from lsm_core.training.predictor import model_from_plain
from storage.checkpoints import Checkpoints
from storage.dataset_reader import Dataset
from storage.dataset_schema import digest_of
from storage.location import Location
from storage.model_registry import ModelRegistry, registered_name


class NoChampion(BadInput):
    """A benchmark has no model yet that could be trained further."""


class NoMoreSeeds(BadInput):
    """The samples of a champion come from files, which no seed continues."""


def champion_experiment(benchmark: BenchmarkName, root: Location, tracking_uri: str) -> Experiment:
    """Return the champion's experiment, started from its weights, on all data used so far.

    Used are the samples that any model of the champion's preset and kind of data was trained on;
    validation and test samples stay the same. The result is not yet bound to data and code.
    """
    registry, name = ModelRegistry(tracking_uri), registered_name(benchmark)
    champion = registry.with_alias(name, "champion")
    if champion is None:
        raise NoChampion(
            f"there is no champion {name} to start from; train a model of {benchmark}, which "
            "registers it"
        )
    identity = champion.tags["identity"]
    result = Checkpoints(root / "checkpoints" / identity).result()
    if result is None:
        raise BadInput(f"the champion's run {identity} is not in {root}, where it was trained")
    experiment = experiment_of(result)
    n_train, added = experiment.data.n_train, dict[str, AddedSamples]()
    for version in reversed(registry.versions(name)):
        of = version.tags.get("preset"), version.tags.get("origin", "generated")
        if of != (experiment.preset, experiment.data.origin):
            continue
        own = _added(json.loads(version.tags.get("added", "[]")))
        added |= {each.digest: each for each in own}
        n_own = int(version.tags.get("n_train", 0)) - sum(each.n_samples for each in own)
        if experiment.data.origin == "generated":
            n_train = max(n_train, n_own)
    data = extended(replace(experiment.data, n_train=n_train), tuple(added.values()))
    training = experiment.training
    if training.selection == "best_test":  # the test samples will judge it
        training = replace(training, selection="last")
    return replace(experiment, data=data, training=training, start=Start(source=identity))


def with_more_seeds(experiment: Experiment, n_new: int) -> Experiment:
    """Return an experiment on `n_new` more samples, of the seeds after those it has."""
    if n_new < 1:
        raise BadInput(f"retraining needs new samples, at least 1, got {n_new}")
    if experiment.data.origin != "generated":
        name = experiment.data.benchmark.name
        raise NoMoreSeeds(
            f"the champion of {name} was trained on {experiment.data.origin} files, which no seeds "
            "continue; name a folder with new files (watched), or promote a model of generated data"
        )
    return replace(
        experiment, data=replace(experiment.data, n_train=experiment.data.n_train + n_new)
    )


def with_files(experiment: Experiment, taken: Sequence[AddedSamples]) -> Experiment | None:
    """Return an experiment on samples of files, too; None if it has all of them already."""
    data = experiment.data
    known = data.added if isinstance(data, ExtendedPlan) else ()
    new = [each for each in taken if each not in known]
    if not new:
        return None
    return replace(experiment, data=extended(data, (*known, *new)))


def with_dataset(
    experiment: Experiment, dataset: Dataset, root: Location
) -> tuple[Experiment | None, str]:
    """Return an experiment on the training samples of a dataset, too; or None, and why not.

    Of a generated dataset of the same problem the seeds count that were not used before; of any
    other one all samples do, which are kept beside those of files.
    """
    if dataset.provenance.get("kind") == "generated":
        return _with_seeds_of(experiment, dataset)
    data = experiment.data
    own = data.official if isinstance(data, ExtendedPlan) else data
    if isinstance(own, OfficialPlan) and own.recipe == dataset.attributes.get("recipe"):
        return None, f"the champion was trained on {dataset.location}"
    try:
        taken = take_dataset(dataset, data.benchmark, root)
    except ValueError as error:
        return None, f"{dataset.location} was left: {error}"
    planned = with_files(experiment, [taken])
    return planned, "" if planned else f"the samples of {dataset.location} were used before"


def _with_seeds_of(experiment: Experiment, dataset: Dataset) -> tuple[Experiment | None, str]:
    data, provenance = experiment.data, dataset.provenance
    if data.origin != "generated":
        return None, f"{dataset.location} is generated, the champion is of {data.origin} files"
    if digest_of(provenance.get("parameters")) != digest_of(data.benchmark.parameters()):
        return None, f"{dataset.location} is of a problem with other parameters"
    added = sum(each["n_samples"] for each in provenance.get("added", []))
    n_train = dataset.attributes["split_sizes"]["train"] - added
    if n_train <= data.n_train:
        return None, f"{dataset.location} has no seed that was not used before"
    return replace(experiment, data=replace(data, n_train=n_train)), ""


def _added(plain: Sequence[dict[str, Any]]) -> tuple[AddedSamples, ...]:
    return tuple(AddedSamples(**each) for each in plain)


def experiment_of(result: dict[str, Any]) -> Experiment:
    """Return the experiment that a result is of, not yet bound to data and code.

    How its data is cut into blocks is that of the preset: it changes no sample.
    """
    settings = result["settings"]
    try:
        sizes = settings["data"]["split_sizes"]
        added = _added(settings["data"].get("added", []))
        data = replace(
            data_plan(settings["preset"], settings["data"]["benchmark"]),
            benchmark=benchmark_of(settings["data"]),
            n_train=sizes["train"] - sum(each.n_samples for each in added),
            n_validation=sizes["validation"],
            n_test=sizes["test"],
        )
        if "official" in settings["data"]:
            data = OfficialPlan(**{**vars(data), **settings["data"]["official"]})
        return Experiment(
            preset=settings["preset"],
            data=extended(data, added),
            model_name=settings["model_name"],
            model=model_from_plain(settings["model_name"], settings["model"]),
            training=from_plain(TrainingConfig, settings["training"]),
            seed=result["seed"],
        )
    except (KeyError, ValueError, TypeError) as error:
        raise BadInput(f"run {result['identity']} cannot be repeated: {error}") from error
