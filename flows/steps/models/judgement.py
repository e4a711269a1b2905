"""Champion and challenger: who is the model of a benchmark, and who takes its place.

    verdict = judge(benchmark, dataset, root, uri)          promoted, or kept, and why
    verdict = judge_left(benchmark, root, uri)              of one that died before its verdict
    verdict = settle_champion(results, root, uri)           the best of some runs challenges
    verdict = answer(version, approval, root, uri)          what a person said of one that needs it

Both are judged on the same locked test samples, and on new ones. A verdict, and the champion that
it makes, is one change of the store's record: whatever fails before leaves the champion in place,
and judging again gives the same verdict.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from flows.errors import BadInput
from flows.steps.models.champions import TEST_SAMPLES, decide_champion, was_set_aside
from flows.steps.models.measurement import Pair, measure
from flows.steps.models.packaging import registered_model
from flows.steps.results import stored_result
from lsm_core.evaluation.promotion import Decision, PromotionRule, decide, next_level
from lsm_core.result import Result
from storage.datasets.reader import Dataset, open_dataset
from storage.errors import DatasetIncomplete, NotADataset
from storage.location import Location
from storage.tracking.model_state import (
    Change,
    ModelVersion,
    State,
    Turn,
    VerdictName,
    champion_alias,
)
from storage.tracking.registry import ModelRegistry, registered_name

RETRAIN_SUITE = "retrain"
RetrainingState = Literal["Promoted", "Kept", "NothingNew", "NeedsApproval"]
"""How a retraining ends."""
VERDICTS: Mapping[str, VerdictName] = {
    "promote": "Promoted",
    "keep": "Kept",
    "ask": "NeedsApproval",
}


@dataclass(frozen=True, kw_only=True)
class Terms:
    """On what terms models are judged."""

    rule: PromotionRule = field(default_factory=PromotionRule)
    """Its level gives way to what the budget leaves."""
    false_promotions: float = 0.1
    """How many equal challengers may be promoted in a year of judgements, on average."""
    approve: bool = False
    """Whether a person has to agree to every promotion."""
    at: int | None = None
    """When it is judged, in milliseconds since 1970; now if it is not said."""

    @property
    def time(self) -> int:
        """Return when it is judged."""
        return time.time_ns() // 1_000_000 if self.at is None else self.at


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was decided on a model that challenged, and why."""

    model: str
    state: RetrainingState
    reason: str
    champion: int | None = None
    """Version that was the champion before; None where nothing was compared."""
    challenger: int | None = None
    decision: Decision | None = None
    """The figures, where both were measured on the same samples."""
    pair: Pair | None = None
    """What they rest on."""

    @property
    def promoted(self) -> bool:
        """Return whether the challenger is the champion now."""
        return self.state == "Promoted"

    @classmethod
    def on(
        cls,
        champion: ModelVersion,
        challenger: ModelVersion,
        state: RetrainingState,
        reason: str,
        decision: Decision | None = None,
        pair: Pair | None = None,
    ) -> "Verdict":
        """Return the verdict on two versions of a name."""
        return cls(
            model=champion.name,
            state=state,
            reason=reason,
            champion=champion.number,
            challenger=challenger.number,
            decision=decision,
            pair=pair,
        )

    def to_plain(self) -> dict[str, Any]:
        """Return it as flat plain data, without what is not known."""
        known = {n: v for n, v in vars(self).items() if v is not None and n != "pair"}
        decision = known.pop("decision", None)
        figures = {} if decision is None else decision.to_plain()
        return {**figures, **known, "promoted": self.promoted}

    def to_tags(self) -> dict[str, str]:
        """Return the tags of a challenger that was judged; the record has all the figures."""
        against = {} if self.champion is None else {"against": self.champion}
        known = {"promoted": self.promoted, "state": self.state, "reason": self.reason, **against}
        return {f"judged/{name}": str(value) for name, value in known.items()}


def judge(
    benchmark: str,
    dataset: Location,
    root: Location,
    tracking_uri: str,
    terms: Terms | None = None,
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
        verdict = Verdict.on(champion, challenger, "Promoted", "it is the champion")
        registry.note(name, Change(aliases={"challenger": None}, reason=verdict.reason))
        return verdict
    return _judge(registry, champion, challenger, open_dataset(dataset), terms or Terms())


def judge_left(
    benchmark: str, root: Location, tracking_uri: str, terms: Terms | None = None
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
        return judge(benchmark, dataset_of(result, root).location, root, tracking_uri, terms)
    except (BadInput, NotADataset, DatasetIncomplete) as error:
        # It would be the same every night, and no later retraining would be reached.
        champion = models.champion(left.league) or left
        verdict = Verdict.on(champion, left, "Kept", f"it cannot be judged: {error}")
        tags = replace(verdict, champion=None).to_tags()
        challenger = registry.find(str(left))
        at = (terms or Terms()).time
        decide_champion(registry, challenger, "Kept", verdict.reason, tags=tags, at=at)
        return verdict


def answer(
    version: ModelVersion, promote: bool, why: str, root: Location, tracking_uri: str, at: int
) -> Verdict:
    """Keep what a person decided on a version that needed approval, and return the verdict.

    If the champion has changed since, another one is not put in its place by an old answer.
    """
    registry = ModelRegistry(tracking_uri, root)
    champion = registry.state(version.name).champion(version.league) or version
    asked = [
        turn
        for turn in registry.record.turns(version.name)
        if turn.challenger == version.number and turn.verdict == "NeedsApproval"
    ]
    before = asked[-1].reason if asked else "it was not judged"
    figures = dict(asked[-1].figures) if asked else {}
    figures.pop("level", None)  # it was spent when it was judged
    said = why.strip() or "no reason was given"
    if champion.number == version.number:
        return Verdict.on(champion, version, "Promoted", "it is the champion")
    if promote and asked and asked[-1].before != champion.number:
        promote, said = False, f"approved, but {champion} has become champion since; {said}"
    verdict = Verdict.on(
        champion,
        version,
        "Promoted" if promote else "Kept",
        f"{'approved' if promote else 'refused'}: {said}; {before}",
    )
    decided: VerdictName = "Promoted" if promote else "Refused"
    tags = verdict.to_tags()
    decide_champion(registry, version, decided, verdict.reason, figures, tags=tags, at=at)
    return verdict


def _awaits_verdict(version: ModelVersion) -> bool:
    """Return whether a retraining died before its verdict, or its model challenges once more."""
    is_judged = any(tag.startswith("judged/") for tag in version.tags)
    return (
        version.tags.get("suite") == RETRAIN_SUITE
        and ("challenger" in version.aliases or not is_judged)
        and champion_alias(version.league) not in version.aliases
    )


def dataset_of(result: Result, root: Location) -> Dataset:
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
    dataset = dataset_of(best, root)
    if champion is None:
        reason = f"the first champion of {challenger.league or 'its kind'}"
        decide_champion(registry, challenger, "First", reason, locked=_test_digest(dataset))
        return Verdict.on(challenger, challenger, "Promoted", reason)
    lost = challenger.tags.get("judged/promoted") == "False"
    if lost and challenger.tags.get("judged/against") == str(champion.number):
        return None  # the verdict would be the same
    if was_set_aside(registry, challenger, champion):
        return None
    return _judge(registry, champion, challenger, dataset, Terms())


def _judge(
    registry: ModelRegistry,
    champion: ModelVersion,
    challenger: ModelVersion,
    dataset: Dataset,
    terms: Terms,
) -> Verdict:
    """Compare two versions on the test samples of a dataset, and keep what follows from it."""
    digest = _test_digest(dataset)
    _require_locked(registry.state(champion.name), champion, dataset, digest)
    pair = measure(
        registered_model(registry, champion),
        registered_model(registry, challenger),
        dataset,
        registry.root,
        same_samples={champion.tags.get(TEST_SAMPLES), challenger.tags.get(TEST_SAMPLES)}
        == {digest},
    )
    asked = _asked(registry, champion, challenger)
    level = float(asked.figures["level"]) if asked else 0.0
    level = level or next_level(_spent(registry, champion), terms.time, terms.false_promotions)
    rule = replace(terms.rule, level=level)
    decision = decide(pair.champion, pair.challenger, rule, pair.control)
    state = VERDICTS[decision.outcome]
    if asked or (terms.approve and decision.promoted):
        state = "NeedsApproval"
    verdict = Verdict.on(champion, challenger, _ended(state), decision.reason, decision, pair)
    if asked:
        return verdict  # it was kept, and its level spent, when it was judged
    decide_champion(
        registry,
        challenger,
        state,
        verdict.reason,
        decision.to_plain(),
        locked=digest,  # both can be judged by them
        tags=verdict.to_tags(),
        at=terms.time,
    )
    return verdict


def _asked(
    registry: ModelRegistry, champion: ModelVersion, challenger: ModelVersion
) -> Turn | None:
    """Return the judgement on which a person's word is waited for; None if there is none."""
    turns = registry.record.turns(champion.name)
    last = next((turn for turn in turns[::-1] if turn.challenger == challenger.number), None)
    if last is None or last.verdict != "NeedsApproval" or last.before != champion.number:
        return None
    return last


def _ended(verdict: VerdictName) -> RetrainingState:
    return verdict if verdict in ("Promoted", "NeedsApproval") else "Kept"


def _spent(registry: ModelRegistry, champion: ModelVersion) -> list[tuple[int, float]]:
    """Return when a league was judged, and at which levels."""
    return [
        (turn.at, float(turn.figures["level"]))
        for turn in registry.record.turns(champion.name)
        if turn.league == champion.league and "level" in turn.figures
    ]


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
        return {TEST_SAMPLES: _test_digest(dataset_of(result, root))}
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
