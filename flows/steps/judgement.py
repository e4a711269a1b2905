"""Champion and challenger: who is the model of a benchmark, and who takes its place.

    verdict = judge(benchmark, dataset, uri)                promoted, or kept, and why
    verdict = judge_left(benchmark, root, uri)              of one that died before its verdict
    verdict = settle_champion(results, root, uri)           the best of some runs challenges

Both are judged on the same locked test samples. The champion changes in one step, and only the
alias of the challenger is taken away after it: whatever fails before leaves the champion in place,
and judging again gives the same verdict.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flows.errors import BadInput
from flows.steps.fields import PartsOfStore, part_of
from flows.steps.packaging import PackagedModel, open_package
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.evaluation.evaluate import relative_errors
from lsm_core.evaluation.promotion import PromotionRule, Verdict, decide
from lsm_core.names import BenchmarkName
from storage.checkpoints import Checkpoints
from storage.dataset_reader import Dataset, open_dataset
from storage.errors import DatasetIncomplete, NotADataset
from storage.location import Location
from storage.model_registry import ModelRegistry, ModelVersion, registered_name

LOCKED = "locked_test_samples"
"""The tag of a registered name that says by which test samples its models are judged."""
TEST_SAMPLES = "test_samples"
"""The tag of a version that says which test samples its own dataset has."""
RETRAIN_SUITE = "retrain"
EVALUATION_BATCH = 100


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
    told = _judged(registry, champion, challenger, open_dataset(dataset), rule or PromotionRule())
    registry.remove_alias(name, "challenger")
    return told


def judge_left(
    benchmark: BenchmarkName,
    root: Location,
    tracking_uri: str,
    rule: PromotionRule | None = None,
) -> dict[str, Any] | None:
    """Judge the model of a retraining that died before its verdict; None if there is none.

    Its samples count as used as soon as it is registered: without a verdict they would be lost.
    """
    registry, name = ModelRegistry(tracking_uri), registered_name(benchmark)
    left = next((each for each in registry.versions(name) if _awaits_verdict(each)), None)
    if left is None:
        return None
    result = Checkpoints(root / "checkpoints" / left.tags["identity"]).result()
    if result is None:
        registry.set_tags(left, {"judged/reason": f"its run is not in {root}"})
        return None
    registry.set_alias(name, "challenger", left.number)
    try:
        return judge(benchmark, _dataset_of(result, root).location, tracking_uri, rule)
    except (BadInput, NotADataset, DatasetIncomplete) as error:
        # It would be the same every night, and no later retraining would be reached.
        verdict = {"promoted": False, "reason": f"it cannot be judged: {error}"}
        registry.set_tags(left, {f"judged/{key}": str(value) for key, value in verdict.items()})
        registry.remove_alias(name, "challenger")
        return _told(registry.with_alias(name, "champion") or left, left, verdict)


def _awaits_verdict(version: ModelVersion) -> bool:
    """Return whether a retraining died before the end of its judgement.

    Its last step takes the alias of the challenger away: with that, tags do not mean a verdict.
    """
    is_judged = any(tag.startswith("judged/") for tag in version.tags)
    return (
        version.tags.get("suite") == RETRAIN_SUITE
        and ("challenger" in version.aliases or not is_judged)
        and "champion" not in version.aliases
    )


def _dataset_of(result: dict[str, Any], root: Location) -> Dataset:
    """Return the samples of a run: of official files, those that its preset uses."""
    place = root / "datasets" / result["benchmark"] / result["dataset"]["name"]
    settings = result.get("settings", {})
    return open_dataset(place).first(settings.get("data", {}).get("split_sizes", {}))


def settle_champion(
    results: Sequence[dict[str, Any]],
    root: Location,
    tracking_uri: str,
    rule: PromotionRule | None = None,
) -> dict[str, Any] | None:
    """Let the best of some registered runs of a benchmark challenge its champion.

    The best has the least error on validation samples, so that the test samples judge a model
    that they did not choose; runs whose epoch they chose are left out. Without a champion it
    becomes that. A champion of the preset smoke, which learns nothing, gives way to any other.
    Returns the verdict, or None where there was nothing to decide.
    """
    fair = [result for result in results if result.get("selection") != "best_test"]
    if not fair:
        return None
    best = min(fair, key=_choosing_error)
    registry, name = ModelRegistry(tracking_uri), registered_name(best["benchmark"])
    challenger = registry.of_run(name, best["identity"])
    if challenger is None:
        raise BadInput(f"run {best['identity']} is not registered as a model of {name}")
    champion = registry.with_alias(name, "champion")
    if champion is not None and champion.number == challenger.number:
        return None
    dataset = _dataset_of(best, root)
    gives_way = champion is not None and champion.tags.get("preset") == "smoke" != best["preset"]
    if champion is None or gives_way:
        registry.set_name_tag(name, LOCKED, _test_digest(dataset))
        registry.set_alias(name, "champion", challenger.number)
        reason = "the champion only showed that it runs" if gives_way else "the first champion"
        return _told(champion or challenger, challenger, {"promoted": True, "reason": reason})
    lost = challenger.tags.get("judged/promoted") == "False"
    if lost and challenger.tags.get("judged/against") == str(champion.number):
        return None  # the verdict would be the same
    return _judged(registry, champion, challenger, dataset, rule or PromotionRule())


def _choosing_error(result: dict[str, Any]) -> float:
    return float((result.get("validation") or result["test"])["rel_l2"])


def _judged(
    registry: ModelRegistry,
    champion: ModelVersion,
    challenger: ModelVersion,
    dataset: Dataset,
    rule: PromotionRule,
) -> dict[str, Any]:
    """Compare two versions, keep the verdict with the challenger, then move the alias."""
    digest = _test_digest(dataset)
    _require_locked(registry, champion, challenger, dataset, digest)
    verdict = compare(registry, champion, challenger, dataset, rule)
    registry.set_name_tag(champion.name, LOCKED, digest)  # both can be judged by them
    figures = {f"judged/{key}": str(value) for key, value in verdict.plain().items()}
    registry.set_tags(challenger, {**figures, "judged/against": str(champion.number)})
    if verdict.promoted:
        registry.set_alias(champion.name, "champion", challenger.number)
    return _told(champion, challenger, verdict.plain())


def compare(
    registry: ModelRegistry,
    champion: ModelVersion,
    challenger: ModelVersion,
    dataset: Dataset,
    rule: PromotionRule,
) -> Verdict:
    """Return the verdict on two versions, from their errors on the test samples of a dataset."""
    before, after = (
        sample_errors(_opened(registry, version), dataset) for version in (champion, challenger)
    )
    return decide(before, after, rule)


def sample_errors(model: PackagedModel, dataset: Dataset) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the relative L2 error of a model on every test sample of a dataset.

    The fields are those on which the model was trained; a dataset on another grid has to be one
    that the model supports.
    """
    sizes = dict(dataset.to_xarray().sizes)
    grid = {axis: int(sizes[axis]) for axis in model.benchmark.space}
    benchmark = _on_grid(model.benchmark, grid)
    parts = PartsOfStore(part_of(dataset, benchmark, "test"), benchmark)
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
    registry: ModelRegistry,
    champion: ModelVersion,
    challenger: ModelVersion,
    dataset: Dataset,
    digest: str,
) -> None:
    """Refuse other test samples than those of earlier judgements, or of the champion before any.

    The first are not chosen by a challenger of another kind of data than the champion's.
    """
    name = champion.name
    locked = registry.name_tags(name).get(LOCKED) or champion.tags.get(TEST_SAMPLES)
    before, after = (each.tags.get("origin", "generated") for each in (champion, challenger))
    if not locked and before != after:
        raise BadInput(
            f"{name}/{challenger.number} was trained on {after} data and the champion on {before} "
            "data; choose with `lsm registry promote`"
        )
    if locked and locked != digest:
        raise BadInput(
            f"the test samples of {dataset.location} are not those by which models of "
            f"{name.removeprefix('lsm-')} are judged ({digest} instead of {locked}); judge on "
            "data with the same test samples, or choose with `lsm registry promote`"
        )


def samples_tag(result: dict[str, Any], root: Location) -> dict[str, str]:
    """Return the tag that says which test samples a run's dataset has; none if it is gone."""
    try:
        return {TEST_SAMPLES: _test_digest(_dataset_of(result, root))}
    except (NotADataset, DatasetIncomplete):
        return {}


def _test_digest(dataset: Dataset) -> str:
    hashed = hashlib.sha256()
    for name, values in _test_arrays(dataset):
        hashed.update(name.encode())
        hashed.update(np.ascontiguousarray(values).tobytes())
    return hashed.hexdigest()[:16]


def _test_arrays(dataset: Dataset) -> Iterator[tuple[str, np.ndarray[Any, np.dtype[Any]]]]:
    """Yield inputs and targets of the test samples, in the order of their names."""
    whole = dataset.to_xarray()
    names = [n for n in whole if whole[n].attrs.get("role") in ("input", "target")]
    for name in sorted(map(str, names)):
        yield name, dataset.part("test", [name])[:][name]


def _told(
    champion: ModelVersion, challenger: ModelVersion, verdict: dict[str, Any]
) -> dict[str, Any]:
    return {
        "model": champion.name,
        "champion": champion.number,
        "challenger": challenger.number,
        **verdict,
    }
