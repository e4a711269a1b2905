"""Retraining: a challenger of the champion, judged on the same locked test samples.

    experiment = challenger_experiment(benchmark, n_new, root, uri)   what to train
    register_run(identity, root, uri, alias="challenger")             after it is trained
    verdict = judge(benchmark, dataset, uri)                          promoted, or kept, and why

The champion changes in one step, the last: whatever fails before leaves it in place, and judging
again gives the same verdict.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flows.errors import BadInput
from flows.steps.fields import PartsOfStore, part_of
from flows.steps.packaging import PackagedModel, open_package
from flows.steps.surrogates import benchmark_of
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.configuration import from_plain
from lsm_core.evaluation.evaluate import relative_errors
from lsm_core.evaluation.promotion import PromotionRule, Verdict, decide
from lsm_core.experiments.data_plans import data_plan
from lsm_core.experiments.experiment import Experiment, Start
from lsm_core.names import BenchmarkName
from lsm_core.training.config import TrainingConfig
from lsm_core.training.predictor import model_from_plain
from storage.checkpoints import Checkpoints
from storage.dataset_reader import open_dataset
from storage.location import Location
from storage.model_registry import ModelRegistry, ModelVersion, registered_name

LOCKED = "locked_test_samples"
"""The tag of a registered name that says by which test samples its models are judged."""
EVALUATION_BATCH = 100


def challenger_experiment(
    benchmark: BenchmarkName, n_new: int, root: Location, tracking_uri: str
) -> Experiment:
    """Return the champion's experiment with `n_new` more samples, started from its weights.

    The samples are those of the seeds after the ones that any model of the benchmark was trained
    on; validation and test samples stay the same. The result is not yet bound to data and code.
    """
    if n_new < 1:
        raise BadInput(f"retraining needs new samples, at least 1, got {n_new}")
    registry, name = ModelRegistry(tracking_uri), registered_name(benchmark)
    champion = registry.with_alias(name, "champion")
    if champion is None:
        raise BadInput(
            f"there is no champion {name} to start from; train a model of {benchmark} and "
            "register it with `lsm registry add`"
        )
    identity = champion.tags["identity"]
    result = Checkpoints(root / "checkpoints" / identity).result()
    if result is None:
        raise BadInput(f"the champion's run {identity} is not in {root}, where it was trained")
    most = max(int(version.tags.get("n_train", 0)) for version in registry.versions(name))
    experiment = experiment_of(result)
    return replace(
        experiment,
        data=replace(experiment.data, n_train=most + n_new),
        start=Start(source=identity),
    )


def experiment_of(result: dict[str, Any]) -> Experiment:
    """Return the experiment that a result is of, not yet bound to data and code.

    How its data is cut into blocks is that of the preset: it changes no sample.
    """
    settings = result["settings"]
    try:
        sizes = settings["data"]["split_sizes"]
        data = replace(
            data_plan(settings["preset"], settings["data"]["benchmark"]),
            benchmark=benchmark_of(settings["data"]),
            n_train=sizes["train"],
            n_validation=sizes["validation"],
            n_test=sizes["test"],
        )
        return Experiment(
            preset=settings["preset"],
            data=data,
            model_name=settings["model_name"],
            model=model_from_plain(settings["model_name"], settings["model"]),
            training=from_plain(TrainingConfig, settings["training"]),
            seed=result["seed"],
        )
    except (KeyError, ValueError) as error:
        raise BadInput(f"run {result['identity']} cannot be repeated: {error}") from error


def judge(
    benchmark: BenchmarkName,
    dataset: Location,
    tracking_uri: str,
    rule: PromotionRule | None = None,
) -> dict[str, Any]:
    """Compare the challenger with the champion, promote the better one, and return the verdict.

    Both predict the test samples of the dataset, which must be those that the first judgement of
    this benchmark used. The verdict is kept with the challenger before the champion changes.
    """
    registry, name = ModelRegistry(tracking_uri), registered_name(benchmark)
    champion, challenger = (
        registry.with_alias(name, "champion"),
        registry.with_alias(name, "challenger"),
    )
    if champion is None or challenger is None:
        missing = "champion" if champion is None else "challenger"
        raise BadInput(f"there is no {name}@{missing} to judge")
    if champion.number == challenger.number:
        registry.remove_alias(name, "challenger")
        return _told(champion, challenger, {"promoted": True, "reason": "it is the champion"})
    _require_locked(registry, name, dataset, benchmark)
    verdict = compare(registry, champion, challenger, dataset, rule or PromotionRule())
    figures = {f"judged/{key}": str(value) for key, value in verdict.plain().items()}
    registry.set_tags(challenger, {**figures, "judged/against": str(champion.number)})
    if verdict.promoted:
        registry.set_alias(name, "champion", challenger.number)
    registry.remove_alias(name, "challenger")
    return _told(champion, challenger, verdict.plain())


def compare(
    registry: ModelRegistry,
    champion: ModelVersion,
    challenger: ModelVersion,
    dataset: Location,
    rule: PromotionRule,
) -> Verdict:
    """Return the verdict on two versions, from their errors on the test samples of a dataset."""
    before, after = (
        sample_errors(_opened(registry, version), dataset) for version in (champion, challenger)
    )
    return decide(before, after, rule)


def sample_errors(model: PackagedModel, dataset: Location) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the relative L2 error of a model on every test sample of a dataset.

    The fields are those on which the model was trained; a dataset on another grid has to be one
    that the model supports.
    """
    opened = open_dataset(dataset)
    sizes = dict(opened.to_xarray().sizes)
    grid = {axis: int(sizes[axis]) for axis in model.benchmark.space}
    benchmark = _on_grid(model.benchmark, grid)
    parts = PartsOfStore(part_of(opened, benchmark, "test"), benchmark)
    errors = relative_errors(model.predictor.surrogate(grid), parts, EVALUATION_BATCH)
    return errors.double().numpy()


def _on_grid(benchmark: Benchmark, grid: dict[str, int]) -> Benchmark:
    if benchmark.shape.space == tuple(grid.values()):
        return benchmark
    return benchmark.at_resolution(next(iter(grid.values())))


def _opened(registry: ModelRegistry, version: ModelVersion) -> PackagedModel:
    with tempfile.TemporaryDirectory() as scratch:
        place = registry.download(f"{version.name}/{version.number}", Path(scratch))
        return open_package(place)


def _require_locked(
    registry: ModelRegistry, name: str, dataset: Location, benchmark: BenchmarkName
) -> None:
    """Lock a name to its test samples at first, and later refuse others."""
    digest = _test_digest(dataset)
    locked = registry.name_tags(name).get(LOCKED)
    if locked is None:
        registry.set_name_tag(name, LOCKED, digest)
    elif locked != digest:
        raise BadInput(
            f"the test samples of {dataset} are not those by which models of {benchmark} are "
            f"judged ({digest} instead of {locked}); judge on data with the same test samples"
        )


def _test_digest(dataset: Location) -> str:
    opened = open_dataset(dataset)
    hashed = hashlib.sha256()
    for name, values in _test_arrays(opened):
        hashed.update(name.encode())
        hashed.update(np.ascontiguousarray(values).tobytes())
    return hashed.hexdigest()[:16]


def _test_arrays(opened: Any) -> Iterator[tuple[str, np.ndarray[Any, np.dtype[Any]]]]:
    """Yield inputs and targets of the test samples, in the order of their names."""
    whole = opened.to_xarray()
    names = [n for n in whole if whole[n].attrs.get("role") in ("input", "target")]
    for name in sorted(map(str, names)):
        yield name, opened.part("test", [name])[:][name]


def _told(
    champion: ModelVersion, challenger: ModelVersion, verdict: dict[str, Any]
) -> dict[str, Any]:
    return {
        "model": champion.name,
        "champion": champion.number,
        "challenger": challenger.number,
        **verdict,
    }
