"""Champion and challenger: who is the model of a benchmark, and who takes its place.

    verdict = judge(benchmark, dataset, root, uri)          promoted, or kept, and why
    verdict = judge_left(benchmark, root, uri)              of one that died before its verdict
    verdict = settle_champion(results, root, uri)           the best of some runs challenges

Both are judged on the same locked test samples. A verdict, and the champion that it makes, is one
change of the store's record: whatever fails before leaves the champion in place, and judging again
gives the same verdict.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flows.errors import BadInput
from flows.steps.models.champions import TEST_SAMPLES, decide_champion, was_set_aside
from flows.steps.models.packaging import PackagedModel, registered_model
from flows.steps.results import stored_result
from flows.steps.training.fields import PartsOfStore, part_of
from lsm_core.evaluation.evaluate import relative_errors
from lsm_core.evaluation.promotion import Decision, PromotionRule, decide
from lsm_core.names import BenchmarkName
from lsm_core.result import Result
from storage.datasets.reader import Dataset, open_dataset
from storage.errors import DatasetIncomplete, NotADataset
from storage.location import Location
from storage.tracking.model_state import Change, ModelVersion, State, champion_alias
from storage.tracking.registry import ModelRegistry, registered_name

RETRAIN_SUITE = "retrain"
EVALUATION_BATCH = 100


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a model became the champion of its name, and why."""

    model: str
    promoted: bool
    reason: str
    champion: int | None = None
    """Version that was the champion before; None where nothing was compared."""
    challenger: int | None = None
    decision: Decision | None = None
    """The figures, where both were measured on the same samples."""

    @classmethod
    def on(
        cls,
        champion: ModelVersion,
        challenger: ModelVersion,
        promoted: bool,
        reason: str,
        decision: Decision | None = None,
    ) -> "Verdict":
        """Return the verdict on two versions of a name."""
        return cls(
            model=champion.name,
            promoted=promoted,
            reason=reason,
            champion=champion.number,
            challenger=challenger.number,
            decision=decision,
        )

    def to_plain(self) -> dict[str, Any]:
        """Return it as flat plain data, without what is not known."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        decision = known.pop("decision", None)
        return known if decision is None else known | decision.to_plain()

    def to_tags(self) -> dict[str, str]:
        """Return the tags of a challenger that was judged."""
        against = {} if self.champion is None else {"against": self.champion}
        figures = self.decision.to_plain() if self.decision else {}
        known = {"promoted": self.promoted, "reason": self.reason, **figures, **against}
        return {f"judged/{name}": str(value) for name, value in known.items()}


def judge(
    benchmark: BenchmarkName,
    dataset: Location,
    root: Location,
    tracking_uri: str,
    rule: PromotionRule | None = None,
) -> Verdict:
    """Compare the challenger with the champion, promote the better one, and return the verdict.

    Both predict the test samples of the dataset, which must be those that the first judgement of
    this benchmark used. The verdict is kept with the challenger.
    """
    registry, name = ModelRegistry(tracking_uri, root), registered_name(benchmark)
    models = registry.state(name)
    challenger = models.with_alias("challenger")
    if challenger is None:
        raise BadInput(f"there is no {name}@challenger to judge")
    champion = models.champion(challenger.league)
    if champion is None:
        raise BadInput(
            f"there is no {name}@{champion_alias(challenger.league)} to judge {challenger} by"
        )
    if champion.number == challenger.number:
        verdict = Verdict.on(champion, challenger, True, "it is the champion")
        registry.note(name, Change(aliases={"challenger": None}, reason=verdict.reason))
        return verdict
    return _judge(registry, champion, challenger, open_dataset(dataset), rule)


def judge_left(
    benchmark: BenchmarkName,
    root: Location,
    tracking_uri: str,
    rule: PromotionRule | None = None,
) -> Verdict | None:
    """Judge the model of a retraining that died before its verdict; None if there is none.

    Its samples count as used as soon as it is registered: without a verdict they would be lost.
    """
    registry, name = ModelRegistry(tracking_uri, root), registered_name(benchmark)
    models = registry.state(name)
    left = next(filter(_awaits_verdict, models.newest_first()), None)
    if left is None:
        return None
    result = stored_result(root, left.tags["identity"])
    if result is None:
        gone = {"judged/reason": f"its run is not in {root}"}
        registry.note(name, Change(versions={left.number: gone}))
        return None
    reason = "its retraining died before the verdict"
    registry.note(name, Change(aliases={"challenger": left.number}, reason=reason))
    try:
        return judge(benchmark, _dataset_of(result, root).location, root, tracking_uri, rule)
    except (BadInput, NotADataset, DatasetIncomplete) as error:
        # It would be the same every night, and no later retraining would be reached.
        champion = models.champion(left.league) or left
        verdict = Verdict.on(champion, left, False, f"it cannot be judged: {error}")
        tags = replace(verdict, champion=None).to_tags()
        challenger = registry.find(str(left))
        decide_champion(registry, challenger, "Kept", verdict.reason, tags=tags)
        return verdict


def _awaits_verdict(version: ModelVersion) -> bool:
    """Return whether a retraining died before its verdict, or its model challenges once more."""
    is_judged = any(tag.startswith("judged/") for tag in version.tags)
    return (
        version.tags.get("suite") == RETRAIN_SUITE
        and ("challenger" in version.aliases or not is_judged)
        and champion_alias(version.league) not in version.aliases
    )


def _dataset_of(result: Result, root: Location) -> Dataset:
    """Return the samples of a run: of official files, those that its preset uses."""
    place = root / "datasets" / result.benchmark / result.dataset.name
    return open_dataset(place).first(result.settings.get("data", {}).get("split_sizes", {}))


def settle_champion(results: Sequence[Result], root: Location, tracking_uri: str) -> Verdict | None:
    """Let the best of some registered runs of a benchmark challenge the champion of their league.

    The best has the least error on validation samples, so that the test samples judge a model
    that they did not choose; runs whose epoch they chose are left out. Without a champion it
    becomes that. Returns the verdict, or None where there was nothing to decide.
    """
    fair = [result for result in results if result.selection != "best_test"]
    if not fair:
        return None
    best = min(fair, key=lambda result: (result.validation or result.test)[Result.ERROR])
    registry, name = ModelRegistry(tracking_uri, root), registered_name(best.benchmark)
    models = registry.state(name)
    challenger = models.of_run(best.identity)
    if challenger is None:
        raise BadInput(f"run {best.identity} is not registered as a model of {name}")
    champion = models.champion(challenger.league)
    if champion is not None and champion.number == challenger.number:
        return None
    dataset = _dataset_of(best, root)
    if champion is None:
        reason = f"the first champion of {challenger.league or 'its kind'}"
        decide_champion(registry, challenger, "First", reason, locked=_test_digest(dataset))
        return Verdict.on(challenger, challenger, True, reason)
    lost = challenger.tags.get("judged/promoted") == "False"
    if lost and challenger.tags.get("judged/against") == str(champion.number):
        return None  # the verdict would be the same
    if was_set_aside(registry, challenger, champion):
        return None
    return _judge(registry, champion, challenger, dataset)


def _judge(
    registry: ModelRegistry,
    champion: ModelVersion,
    challenger: ModelVersion,
    dataset: Dataset,
    rule: PromotionRule | None = None,
) -> Verdict:
    """Compare two versions on the test samples of a dataset, and keep what follows from it."""
    digest = _test_digest(dataset)
    _require_locked(registry.state(champion.name), champion, dataset, digest)
    before, after = (
        sample_errors(registered_model(registry, version), dataset)
        for version in (champion, challenger)
    )
    decision = decide(before, after, rule or PromotionRule())
    verdict = Verdict.on(champion, challenger, decision.promoted, decision.reason, decision)
    decide_champion(
        registry,
        challenger,
        "Promoted" if verdict.promoted else "Kept",
        verdict.reason,
        decision.to_plain(),
        locked=digest,  # both can be judged by them
        tags=verdict.to_tags(),
    )
    return verdict


def sample_errors(model: PackagedModel, dataset: Dataset) -> np.ndarray[Any, np.dtype[Any]]:
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
    errors = relative_errors(model.predictor.surrogate(grid), parts, EVALUATION_BATCH)
    return errors.double().numpy()


def _require_locked(models: State, champion: ModelVersion, dataset: Dataset, digest: str) -> None:
    """Refuse other test samples than those of earlier judgements, or of the champion before any."""
    locked = models.locked.get(champion.league) or champion.tags.get(TEST_SAMPLES)
    if locked and locked != digest:
        raise BadInput(
            f"the test samples of {dataset.location} are not those by which models of "
            f"{champion.name.removeprefix(registered_name(''))} are judged ({digest} instead of "
            f"{locked}); judge on data with the same test samples, or choose with `lsm registry "
            "promote`"
        )


def samples_tag(result: Result, root: Location) -> dict[str, str]:
    """Return the tag that says which test samples a run's dataset has; none if it is gone."""
    try:
        return {TEST_SAMPLES: _test_digest(_dataset_of(result, root))}
    except (NotADataset, DatasetIncomplete):
        return {}


def _test_digest(dataset: Dataset) -> str:
    """Return the hash of inputs and targets of the test samples, in the order of their names."""
    whole, hashed = dataset.to_xarray(), hashlib.sha256()
    names = [n for n in whole if whole[n].attrs.get("role") in ("input", "target")]
    for name in sorted(map(str, names)):
        hashed.update(name.encode())
        hashed.update(np.ascontiguousarray(dataset.part("test", [name])[:][name]).tobytes())
    return hashed.hexdigest()[:16]
