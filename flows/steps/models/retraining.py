"""What a retraining trains: the champion further, on samples that no model has used before.

    base = champion_experiment(benchmark, root, uri)        the champion, and the data so far
    experiment = with_more_seeds(base, 64)                  what to train; or with_files(...),
                                                            with_dataset(...)

When it is trained and registered, `flows.steps.models.judgement` decides whether it becomes the
champion.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from flows.errors import BadInput
from flows.steps.data.added_samples import take_dataset
from flows.steps.results import stored_result
from lsm_core.experiments.experiment import Experiment, Start
from lsm_core.experiments.plans import AddedSamples, ConvertedPlan, ExtendedPlan, extended
from storage.datasets.reader import Dataset
from storage.datasets.schema import digest_of
from storage.errors import translated
from storage.location import Location
from storage.tracking.registry import ModelRegistry, registered_name


class NoChampion(BadInput):
    """A benchmark has no model yet that could be trained further."""


class NoMoreSeeds(BadInput):
    """The samples of a champion come from files, which no seed continues."""


def champion_experiment(benchmark: str, root: Location, tracking_uri: str) -> Experiment:
    """Return the champion's experiment, started from its weights, on all data used so far.

    Used are the samples that any model of the champion's preset and kind of data was trained on;
    validation and test samples stay the same. The result is not yet bound to data and code.
    """
    models = ModelRegistry(tracking_uri, root).state(registered_name(benchmark))
    champion = models.with_alias("champion")
    if champion is None:
        raise NoChampion(
            f"there is no champion {models.name} to start from; train a model of {benchmark}, "
            "which registers it"
        )
    identity = champion.tags["identity"]
    result = stored_result(root, identity)
    if result is None:
        raise BadInput(f"the champion's run {identity} is not in {root}, where it was trained")
    with translated(
        *(KeyError, ValueError, TypeError),
        into=lambda error: BadInput(f"run {identity} cannot be repeated: {error}"),
    ):
        experiment = Experiment.from_plain(result.settings, result.seed)
    n_train, added = experiment.data.n_train, dict[str, AddedSamples]()
    for version in reversed(models.newest_first()):
        of = version.tags.get("preset"), version.tags.get("origin", "generated")
        if of != (experiment.preset, experiment.data.origin):
            continue
        known = json.loads(version.tags.get("added", "[]"))
        own = [AddedSamples(**each) for each in known]
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
    if isinstance(own, ConvertedPlan) and own.recipe == dataset.attributes.get("recipe"):
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
