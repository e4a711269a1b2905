"""What a retraining trains: the champion further, on samples that no model has used before.

    base = champion_experiment(benchmark, root, uri)        the champion, and the data so far
    experiment = with_more_seeds(base, 64)                  what to train; or with_files(...),
                                                            with_dataset(...)
    experiment = within(experiment, base, 4096, root)       as many samples as the budget allows
    control = control_of(champions_result)                  the champion further, on its own data

When it is trained and registered, `flows.steps.models.judgement` decides whether it becomes the
champion.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from flows.errors import BadInput
from flows.steps.data.added_samples import is_kept, take_dataset, training_profile
from flows.steps.models.judgement import RETRAIN_SUITE, dataset_of
from flows.steps.models.measurement import control_experiment
from flows.steps.results import stored_result
from lsm_core.evaluation.new_data import Profile
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.plans import AddedSamples, ConvertedPlan, DataPlan, ExtendedPlan, extended
from lsm_core.result import Result
from storage.datasets.reader import Dataset
from storage.datasets.schema import digest_of
from storage.errors import StorageError, translated
from storage.location import Location
from storage.tracking.model_state import Change, ModelVersion, league_of
from storage.tracking.registry import ModelRegistry, registered_name

LEAST_TESTS = 2
"""Samples that two models can be compared on: of one there is no deviation."""
RUN_TAG = "retrained_by"
"""The tag of a version that says which run of the flow has made it."""
NOTES_TAG = "noted"
ASKED_TAG = "asked"
"""Says that a person was told of the question whether it shall be champion."""
"""The tag of a version with what is to be told of its data beside the verdict."""


class NoChampion(BadInput):
    """A benchmark has no model yet that could be trained further."""


class NoMoreSeeds(BadInput):
    """The samples of a champion come from files, which no seed continues."""


class TooFewTests(BadInput):
    """Two models cannot be compared on the test samples that there are."""


class BudgetSpent(BadInput):
    """A model is trained on as many samples as it may be."""


def champion_experiment(
    benchmark: str, root: Location, tracking_uri: str, league: str | None = None
) -> Experiment:
    """Return the champion's experiment, started from its weights, on all data used so far.

    Used are the samples that any model of its league was ever trained on; validation and test
    samples stay the same. The result is not yet bound to data and code.
    """
    registry = ModelRegistry(tracking_uri, root)
    champion, result = champion_run(benchmark, root, tracking_uri, league)
    with translated(
        *(KeyError, ValueError, TypeError),
        into=lambda error: BadInput(f"run {result.identity} cannot be repeated: {error}"),
    ):
        experiment = control_experiment(result.settings, result.seed, result.identity)
    n_train, added = experiment.data.n_train, dict[str, AddedSamples]()
    for tags in _versions_ever(registry, champion):
        known = json.loads(tags.get("added", "[]"))
        own = [AddedSamples(**each) for each in known]
        added |= {each.digest: each for each in own}
        n_own = int(tags.get("n_train", 0)) - sum(each.n_samples for each in own)
        if experiment.data.origin == "generated":
            n_train = max(n_train, n_own)
    data = extended(replace(experiment.data, n_train=n_train), tuple(added.values()))
    return replace(experiment, data=data)


def require_comparable(experiment: Experiment) -> None:
    """Raise TooFewTests if a challenger could not be judged, before it is trained."""
    n_test = experiment.data.split_sizes["test"]
    if n_test < LEAST_TESTS:
        raise TooFewTests(
            f"{experiment.data.benchmark.name} has {n_test} test sample, and two models are "
            f"compared on {LEAST_TESTS} at least; ingest more samples, or test on more (--split)"
        )


def champion_run(
    benchmark: str, root: Location, tracking_uri: str, league: str | None = None
) -> tuple[ModelVersion, Result]:
    """Return the champion of a league, of the largest if none is named, and its run."""
    models = ModelRegistry(tracking_uri, root).state(registered_name(benchmark))
    champion = models.champion(league)
    if champion is None:
        raise NoChampion(
            f"there is no champion {models.name} to start from; train a model of {benchmark}, "
            "which registers it"
        )
    identity = champion.tags["identity"]
    result = stored_result(root, identity)
    if result is None:
        raise BadInput(f"the champion's run {identity} is not in {root}, where it was trained")
    return champion, result


def _versions_ever(registry: ModelRegistry, champion: ModelVersion) -> list[dict[str, str]]:
    """Return the tags of all versions that a league ever had, oldest first, retired ones too."""
    found: dict[int, dict[str, str]] = {}
    for change in registry.record.history(champion.name):
        for number, tags in change.versions.items():
            found[number] = {**found.get(number, {}), **tags}
    return [found[n] for n in sorted(found) if league_of(found[n]) == champion.league]


def champions(root: Location, tracking_uri: str) -> list[str]:
    """Return the problems that have a champion."""
    record, prefix = ModelRegistry(tracking_uri, root).record, registered_name("")
    names = [name for name in record.names() if record.state(name).champion() is not None]
    return [name.removeprefix(prefix) for name in names]


def known_profile(result: Result, experiment: Experiment, root: Location) -> Profile:
    """Return what the champion's training samples look like; nothing if they are gone."""
    try:
        return training_profile(dataset_of(result, root), experiment.benchmark)
    except StorageError:
        return {}


def control_of(result: Result) -> Experiment:
    """Return the champion trained further on its own samples, to see what more epochs give.

    It is the same run for every challenger of a champion, so it is trained once.
    """
    return control_experiment(result.settings, result.seed, result.identity)


def own_challenger(
    benchmark: str, run: str | None, root: Location, tracking_uri: str
) -> ModelVersion | None:
    """Return the version that a run of the flow has registered before it was stopped, or None."""
    versions = ModelRegistry(tracking_uri, root).state(registered_name(benchmark)).newest_first()
    own = (each for each in versions if run and each.tags.get(RUN_TAG) == run)
    return next(own, None)


def retire(benchmark: str, keep: int, root: Location, tracking_uri: str) -> list[int]:
    """Take the oldest models of retrainings from the registry, all but the newest `keep`.

    Champions, those before them and whoever challenges stay.
    """
    registry, name = ModelRegistry(tracking_uri, root), registered_name(benchmark)
    models = registry.state(name)
    retrained = [
        each.number for each in models.newest_first() if each.tags.get("suite") == RETRAIN_SUITE
    ]
    old = tuple(number for number in retrained[keep:] if number not in models.in_use)
    if old:
        reason = f"of the models of retrainings the newest {keep} are kept"
        registry.note(name, Change(retired=old, reason=reason))
    return list(old)


def within(experiment: Experiment, base: Experiment, most: int, root: Location) -> Experiment:
    """Return an experiment on at most so many training samples.

    The oldest of added files go first, the newest seeds last. BudgetSpent if that leaves no sample
    that the base has not.
    """
    data, before = experiment.data, base.data
    added = [each for each in added_of(data) if is_kept(each, data.benchmark, root)]
    known = {each.digest for each in added_of(before)}
    n_added = sum(each.n_samples for each in added)
    while data.n_train + n_added > most and added and added[0].digest in known:
        n_added -= added.pop(0).n_samples
    n_train = max(min(data.n_train, most - n_added), min(data.n_train, before.n_train))
    is_new = n_train > before.n_train or any(each.digest not in known for each in added)
    if not is_new or n_train + n_added > most:
        n_before, n_after = (each.split_sizes["train"] for each in (before, data))
        raise BudgetSpent(
            f"{n_before} training samples leave no room for {n_after - n_before} new ones in the "
            f"budget of {most}; raise max_samples"
        )
    plain = replace(data, n_train=n_train)
    if isinstance(plain, ExtendedPlan):
        return replace(experiment, data=replace(plain, added=tuple(added)))
    return replace(experiment, data=plain)


def added_of(data: DataPlan) -> tuple[AddedSamples, ...]:
    """Return the samples of a plan that came in files."""
    return data.added if isinstance(data, ExtendedPlan) else ()


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
    known = added_of(data)
    digests = {each.digest for each in known}
    new = [each for each in taken if each.digest not in digests]
    if not new:
        return None
    return replace(experiment, data=extended(data, (*known, *new)))


def with_dataset(
    experiment: Experiment, dataset: Dataset, root: Location, known: Profile | None = None
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
        taken = take_dataset(dataset, data.benchmark, root, known)
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
