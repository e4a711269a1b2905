"""Whether a new model replaces the one in use: a test, guards, and a budget of false alarms.

A challenger replaces the champion if its mean error on the locked samples is lower, by a paired
test and by a least gain, and nothing that the mean hides has become much worse.

Every judgement may be wrong. Promotions of equal challengers are kept rare over a year, however
often models are judged: a purse holds half of what a year may have, and is filled with the other
half in the course of a year; each judgement has a tenth of what is in the purse as its level, and
takes it out. The levels of any year add up to the budget at most. With 0.1 a year the first level
is 5e-3; weekly judgements settle at 9.6e-4, nightly ones at 1.4e-4.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.special import stdtr

YEAR = 365 * 24 * 3600 * 1000
"""Milliseconds."""
SHARE = 10
"""A judgement takes one part of so many of what is in the purse."""
WORST = 0.1
"""The part of the samples that counts as the worst."""
LEAST_NEW = 4
"""So many new samples have to be held out for their mean to be a bound."""

Outcome = Literal["promote", "keep", "ask"]
Errors = Float[np.ndarray, " samples"]


@dataclass(frozen=True, kw_only=True)
class PromotionRule:
    """What a challenger has to show on the test samples of the champion.

    A one-sided paired t-test of the errors sample by sample must be significant at `level`, so
    that an equal challenger is promoted in that part of all cases at most; and the mean error must
    have fallen by `least_gain`, as a part of the champion's, so that a change is worth its trouble.
    No part of the error, nor that of the new samples, may have risen by more than `most_rise`; nor
    parameters and time by more than `most_cost`, as parts of the champion's.
    """

    level: float = 0.005
    least_gain: float = 0.01
    most_rise: float = 0.1
    most_cost: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.level < 1:
            raise ValueError(f"level must be from 0 to below 1, got {self.level}")
        if not 0 <= self.least_gain < 1:
            raise ValueError(f"least_gain must be from 0 to below 1, got {self.least_gain}")


def next_level(spent: Iterable[tuple[int, float]], now: int, budget: float = 0.1) -> float:
    """Return the level of a judgement, given the time and the level of those before it.

    Times are in milliseconds. `budget` is how many promotions of equal challengers a year may have
    on average.
    """
    full = yearly = budget / 2
    purse, then = full, now
    for at, level in sorted(spent):
        purse = min(full, purse + yearly * max(0, at - then) / YEAR) - level
        then = at
    return max(0.0, min(full, purse + yearly * max(0, now - then) / YEAR)) / SHARE


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of a model."""

    locked: Errors
    """The error of every locked test sample."""
    new: Float[np.ndarray, " new_samples"] = field(default_factory=lambda: np.empty(0))
    """The error of every new sample that was held out."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Mean errors on the locked samples by name: of the boundary, of channels, of steps."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """What a prediction takes by name: parameters, seconds."""


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A figure that a challenger must not make worse by more than a bound."""

    name: str
    champion: float
    challenger: float
    most: float
    """The bound, as a part of the champion's."""

    @property
    def holds(self) -> bool:
        """Return whether the challenger keeps within the bound."""
        return bool(self.challenger <= (1 + self.most) * self.champion)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision, the figures it rests on and the reason in words."""

    outcome: Outcome
    reason: str
    champion_error: float
    challenger_error: float
    p_value: float
    level: float
    n_samples: int
    champion_new_error: float | None = None
    challenger_new_error: float | None = None
    n_new: int = 0
    control_error: float | None = None
    guards: tuple[Guard, ...] = ()

    @property
    def promoted(self) -> bool:
        """Return whether the challenger takes the champion's place."""
        return self.outcome == "promote"

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data, without what is not known."""
        plain = {name: value for name, value in asdict(self).items() if value is not None}
        guards = [{**asdict(guard), "holds": guard.holds} for guard in self.guards]
        return {**plain, "promoted": self.promoted, "guards": guards}


def decide(
    champion: Measured, challenger: Measured, rule: PromotionRule, control: Errors | None = None
) -> Decision:
    """Return whether the challenger is promoted, measured on the same samples as the champion.

    `control` are the errors of the champion trained on as long without the new samples. They
    decide nothing; the reason tells by them what the samples gave and what the epochs.
    """
    if len(champion.locked) < 2:
        raise ValueError(
            f"two models are compared on two samples at least, got {len(champion.locked)}"
        )
    guards = tuple(_guards(champion, challenger, rule))
    before, after = float(champion.locked.mean()), float(challenger.locked.mean())
    p_value = _paired_p_value(champion.locked - challenger.locked)
    outcome, reason = _judged(champion, challenger, p_value, rule, guards)
    n_new = len(champion.new)
    return Decision(
        outcome=outcome,
        reason="; ".join([reason, *_remarks(champion, challenger, control)]),
        champion_error=before,
        challenger_error=after,
        p_value=p_value,
        level=rule.level,
        n_samples=len(champion.locked),
        champion_new_error=float(champion.new.mean()) if n_new else None,
        challenger_new_error=float(challenger.new.mean()) if n_new else None,
        n_new=n_new,
        control_error=None if control is None else float(control.mean()),
        guards=guards,
    )


def worst_tenth(errors: Errors) -> float:
    """Return the mean of the largest tenth of some errors, of one at least."""
    n_worst = max(1, round(WORST * len(errors)))
    return float(np.sort(errors)[-n_worst:].mean())


def too_few(n_samples: int, level: float) -> bool:
    """Return whether so many samples cannot show anything at a level.

    A challenger that is no better is so on all of n samples with probability 2^-n: no test that
    asks for less than that can be passed honestly.
    """
    return bool(2.0**-n_samples >= level)


def counted(number: int, thing: str) -> str:
    """Return a number of things in words."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _guards(champion: Measured, challenger: Measured, rule: PromotionRule) -> Iterator[Guard]:
    pairs = [("the worst tenth", worst_tenth(champion.locked), worst_tenth(challenger.locked))]
    for name, value in champion.parts.items():
        if name in challenger.parts:
            pairs.append((name, value, challenger.parts[name]))
    if len(champion.new) >= LEAST_NEW:
        means = float(champion.new.mean()), float(challenger.new.mean())
        pairs.append(("the new samples", *means))
    for name, before, after in pairs:
        yield Guard(name=name, champion=before, challenger=after, most=rule.most_rise)
    for name, cost in champion.costs.items():
        if name in challenger.costs:
            yield Guard(
                name=name, champion=cost, challenger=challenger.costs[name], most=rule.most_cost
            )


def _judged(  # noqa: PLR0911 - one line a reason
    champion: Measured,
    challenger: Measured,
    p_value: float,
    rule: PromotionRule,
    guards: tuple[Guard, ...],
) -> tuple[Outcome, str]:
    before, after = float(champion.locked.mean()), float(challenger.locked.mean())
    n_samples = len(champion.locked)
    if not np.isfinite(after):
        return "keep", f"the challenger's error is {after}, no number to compare"
    if not np.isfinite(before):
        return "promote", f"the champion's error is {before}, the challenger's {after:.4g}"
    figures = _change(before, after)
    if too_few(n_samples, rule.level):
        return "keep", (
            f"too few samples to judge: of {n_samples} a challenger that is no better wins all "
            f"in one of {2**n_samples} cases, and {rule.level:.2g} is asked for ({figures})"
        )
    doubt = _doubt(before, after, p_value, rule)
    broken = [_change(g.champion, g.challenger, g.name) for g in guards if not g.holds]
    if broken:
        worse = f"worse than allowed: {', '.join(broken)}"
        return "keep", f"{doubt or 'better on average'}: {figures}; {worse}"
    if not doubt:
        return "promote", f"better: {figures}, p = {p_value:.2g} < {rule.level:.2g}"
    if _is_better_on_the_new(champion, challenger, rule):
        news = _change(float(champion.new.mean()), float(challenger.new.mean()))
        return "ask", (
            f"better on the {len(champion.new)} new samples alone: {news}; on the locked ones "
            f"{doubt}: {figures}; whether the problem has changed is for a person to say"
        )
    return "keep", f"{doubt}: {figures}"


def _doubt(before: float, after: float, p_value: float, rule: PromotionRule) -> str:
    """Return why a mean error is not enough to promote, in words; nothing if it is."""
    gain = 1 - after / before if before else 0.0
    if gain <= 0:
        return "not better"
    if p_value >= rule.level:
        return f"better by chance, perhaps (p = {p_value:.2g}, asked for < {rule.level:.2g})"
    if gain < rule.least_gain:
        return f"too little gained (asked for {rule.least_gain:.1%})"
    return ""


def _is_better_on_the_new(champion: Measured, challenger: Measured, rule: PromotionRule) -> bool:
    if not len(champion.new) or too_few(len(champion.new), rule.level):
        return False
    before, after = float(champion.new.mean()), float(challenger.new.mean())
    p_value = _paired_p_value(champion.new - challenger.new)
    rise = float(challenger.locked.mean()) / float(champion.locked.mean()) - 1
    return not _doubt(before, after, p_value, rule) and rise <= rule.most_rise


def _remarks(champion: Measured, challenger: Measured, control: Errors | None) -> Iterator[str]:
    before, after = float(champion.locked.mean()), float(challenger.locked.mean())
    if len(champion.new):
        old_new, new_new = float(champion.new.mean()), float(challenger.new.mean())
        yield f"on {counted(len(champion.new), 'new sample')} {_change(old_new, new_new)}"
        if old_new > 2 * before:
            yield f"the champion's error there is {old_new / before:.1f} times that on the locked"
    if control is not None and before:
        trained_on = float(control.mean())
        epochs, data = 1 - trained_on / before, (trained_on - after) / before
        yield (
            f"trained on without the new samples it has {trained_on:.4g}: the epochs gave "
            f"{epochs:+.1%} of the champion's error, the samples {data:+.1%}"
        )


def _change(before: float, after: float, name: str = "mean error") -> str:
    gain = 1 - after / before if before else 0.0
    way = "lower" if gain >= 0 else "higher"
    return f"{name} {after:.4g} after {before:.4g}, {abs(gain):.1%} {way}"


def _paired_p_value(gains: Errors) -> float:
    """Return how likely such a mean is if the true one is zero: Student's t, one side."""
    if not np.isfinite(gains).all():
        return 1.0
    mean, n = float(gains.mean()), len(gains)
    deviation = float(gains.std(ddof=1))
    if deviation == 0:
        return 0.0 if mean > 0 else 1.0
    return float(stdtr(n - 1, -mean / (deviation / np.sqrt(n))))
