"""Whether a new model replaces the one in use."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import stdtr


@dataclass(frozen=True, kw_only=True)
class PromotionRule:
    """What a challenger has to show on the test samples of the champion.

    A one-sided paired t-test of the errors sample by sample must be significant at `level`, so
    that an equal challenger is promoted in that part of all cases at most; and the mean error must
    have fallen by `least_gain`, as a part of the champion's, so that a change is worth its trouble.
    """

    level: float = 0.01
    least_gain: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ValueError(f"level must be between 0 and 1, got {self.level}")
        if not 0 <= self.least_gain < 1:
            raise ValueError(f"least_gain must be from 0 to below 1, got {self.least_gain}")


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision, the figures it rests on and the reason in words."""

    promoted: bool
    reason: str
    champion_error: float
    challenger_error: float
    p_value: float
    n_samples: int

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def decide(
    champion: Float[np.ndarray, " samples"],
    challenger: Float[np.ndarray, " samples"],
    rule: PromotionRule,
) -> Decision:
    """Return whether the challenger, with these errors on the same samples, is promoted."""
    if len(champion) < 2:
        raise ValueError(f"two models are compared on two samples at least, got {len(champion)}")
    before, after = float(champion.mean()), float(challenger.mean())
    p_value = _paired_p_value(champion - challenger)
    promoted, reason = _judged(before, after, p_value, rule)
    return Decision(
        promoted=promoted,
        reason=reason,
        champion_error=before,
        challenger_error=after,
        p_value=p_value,
        n_samples=len(champion),
    )


def _judged(before: float, after: float, p_value: float, rule: PromotionRule) -> tuple[bool, str]:
    if not np.isfinite(after):
        return False, f"the challenger's error is {after}, no number to compare"
    if not np.isfinite(before):
        return True, f"the champion's error is {before}, the challenger's {after:.4g}"
    gain = 1 - after / before if before else 0.0
    figures = f"mean error {after:.4g} after {before:.4g}, {abs(gain):.1%} "
    figures += "lower" if gain >= 0 else "higher"
    if gain <= 0:
        return False, f"not better: {figures}"
    if p_value >= rule.level:
        return False, f"better by chance, perhaps: {figures}, p = {p_value:.2g} >= {rule.level:g}"
    if gain < rule.least_gain:
        return False, f"too little gained: {figures}, below {rule.least_gain:.1%}"
    return True, f"better: {figures}, p = {p_value:.2g} < {rule.level:g}"


def _paired_p_value(gains: Float[np.ndarray, " samples"]) -> float:
    """Return how likely such a mean is if the true one is zero: Student's t, one side."""
    if not np.isfinite(gains).all():
        return 1.0
    mean, n = float(gains.mean()), len(gains)
    deviation = float(gains.std(ddof=1))
    if deviation == 0:
        return 0.0 if mean > 0 else 1.0
    return float(stdtr(n - 1, -mean / (deviation / np.sqrt(n))))
