import numpy as np
import pytest
from scipy.stats import ttest_rel

from lsm_core.evaluation.promotion import PromotionRule, decide


def errors(random: np.random.Generator, n_samples: int) -> np.ndarray:
    """Return relative errors as they are seen: positive, skewed, a few much larger."""
    return 0.01 * random.lognormal(0.0, 0.6, n_samples)


def noisy(random: np.random.Generator, values: np.ndarray, factor: float) -> np.ndarray:
    return factor * values * random.lognormal(0.0, 0.15, len(values))


@pytest.mark.parametrize("n_samples", [20, 200])
def test_an_equal_challenger_is_seldom_promoted(n_samples: int) -> None:
    random = np.random.default_rng(0)
    rule = PromotionRule(level=0.05, least_gain=0.0)
    n_trials = 2000
    promoted = 0
    for _ in range(n_trials):
        base = errors(random, n_samples)
        verdict = decide(noisy(random, base, 1.0), noisy(random, base, 1.0), rule)
        promoted += verdict.promoted
    # Binomial: three deviations above the level are 0.05 + 3 * 0.0049.
    assert promoted / n_trials < 0.065


def test_a_better_challenger_is_promoted_and_the_swapped_one_is_not() -> None:
    random = np.random.default_rng(1)
    base = errors(random, 50)
    champion, challenger = noisy(random, base, 1.0), noisy(random, base, 0.85)
    assert decide(champion, challenger, PromotionRule()).promoted
    assert not decide(challenger, champion, PromotionRule()).promoted


def test_the_test_is_paired_and_is_students() -> None:
    random = np.random.default_rng(2)
    base = errors(random, 40)
    champion, challenger = noisy(random, base, 1.0), noisy(random, base, 0.85)
    verdict = decide(champion, challenger, PromotionRule())
    expected = ttest_rel(champion, challenger, alternative="greater").pvalue
    assert verdict.p_value == pytest.approx(expected, rel=1e-9)
    shuffled = random.permutation(challenger)
    assert decide(champion, shuffled, PromotionRule()).p_value > 10 * verdict.p_value


@pytest.mark.parametrize(
    ("factor", "promoted", "reason"),
    [
        (1.0, False, "not better: mean error 0.015 after 0.015, 0.0% lower"),
        (1.2, False, "not better: mean error 0.018 after 0.015, 20.0% higher"),
        (0.995, False, "too little gained: mean error 0.01493 after 0.015, 0.5% lower"),
        (0.9, True, "better: mean error 0.0135 after 0.015, 10.0% lower, p ="),
    ],
)
def test_the_reason_is_told_in_words(factor: float, promoted: bool, reason: str) -> None:
    champion = np.linspace(0.01, 0.02, 11)
    verdict = decide(champion, factor * champion, PromotionRule())
    assert verdict.promoted == promoted
    assert verdict.reason.startswith(reason)


def test_chance_is_named_as_such() -> None:
    champion = np.array([0.01, 0.05, 0.02, 0.04])
    challenger = np.array([0.02, 0.01, 0.03, 0.03])
    verdict = decide(champion, challenger, PromotionRule())
    assert not verdict.promoted
    assert "by chance, perhaps" in verdict.reason


def test_what_is_no_number_is_never_promoted() -> None:
    fine, broken = np.full(5, 0.01), np.array([0.01, np.nan, 0.01, 0.01, 0.01])
    assert not decide(fine, broken, PromotionRule()).promoted
    assert decide(broken, fine, PromotionRule()).promoted


def test_one_sample_decides_nothing() -> None:
    with pytest.raises(ValueError, match="two samples at least"):
        decide(np.ones(1), np.ones(1), PromotionRule())
