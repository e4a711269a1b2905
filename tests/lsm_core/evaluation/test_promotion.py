import numpy as np
import pytest
from scipy.stats import ttest_rel

from lsm_core.evaluation.promotion import (
    SHARE,
    YEAR,
    Decision,
    Measured,
    PromotionRule,
    decide,
    next_level,
    worst_tenth,
)
from tests.measurements.false_promotions import equal_year

DAY = 24 * 3600 * 1000


def errors(random: np.random.Generator, n_samples: int) -> np.ndarray:
    """Return relative errors as they are seen: positive, skewed, a few much larger."""
    return 0.01 * random.lognormal(0.0, 0.6, n_samples)


def noisy(random: np.random.Generator, values: np.ndarray, factor: float) -> np.ndarray:
    return factor * values * random.lognormal(0.0, 0.15, len(values))


def judged(
    champion: np.ndarray, challenger: np.ndarray, rule: PromotionRule | None = None
) -> Decision:
    """Return the decision on errors of the locked samples alone."""
    return decide(Measured(locked=champion), Measured(locked=challenger), rule or PromotionRule())


@pytest.mark.parametrize("n_samples", [20, 200])
def test_an_equal_challenger_is_seldom_promoted(n_samples: int) -> None:
    random = np.random.default_rng(0)
    rule = PromotionRule(level=0.05, least_gain=0.0)
    n_trials = 2000
    promoted = 0
    for _ in range(n_trials):
        base = errors(random, n_samples)
        promoted += judged(noisy(random, base, 1.0), noisy(random, base, 1.0), rule).promoted
    # Binomial: three deviations above the level are 0.05 + 3 * 0.0049.
    assert promoted / n_trials < 0.065


def test_a_year_of_nightly_equal_challengers_promotes_a_tenth_of_one() -> None:
    random = np.random.default_rng(3)
    n_years = 15  # `tests.measurements.false_promotions` prints it for hundreds
    promoted = sum(equal_year(random, 50) for _ in range(n_years))
    # Poisson: three deviations above the budget of 0.1 a year.
    assert promoted / n_years <= 0.1 + 3 * (0.1 / n_years) ** 0.5


@pytest.mark.parametrize("nights", [1, 7, 30])
def test_levels_of_any_year_add_up_to_the_budget_at_most(nights: int) -> None:
    spent: list[tuple[int, float]] = []
    for night in range(0, 800, nights):
        spent.append((night * DAY, next_level(spent, night * DAY)))
        assert sum(level for at, level in spent if at > night * DAY - YEAR) <= 0.1
    assert spent[0][1] == 0.05 / SHARE
    # In the long run each has what comes in between two of them.
    assert spent[-1][1] == pytest.approx(min(0.005, 0.05 * nights / 365), rel=0.05)


def test_a_spent_budget_promotes_nobody() -> None:
    assert next_level([(0, 0.05)], 0) == 0.0
    assert next_level([(0, 0.05)], YEAR) == 0.05 / SHARE
    champion = np.linspace(0.01, 0.02, 11)
    verdict = judged(champion, 0.5 * champion, PromotionRule(level=0.0))
    assert not verdict.promoted


def test_a_better_challenger_is_promoted_and_the_swapped_one_is_not() -> None:
    random = np.random.default_rng(1)
    base = errors(random, 50)
    champion, challenger = noisy(random, base, 1.0), noisy(random, base, 0.85)
    assert judged(champion, challenger).promoted
    assert not judged(challenger, champion).promoted


def test_the_test_is_paired_and_is_students() -> None:
    random = np.random.default_rng(2)
    base = errors(random, 40)
    champion, challenger = noisy(random, base, 1.0), noisy(random, base, 0.85)
    verdict = judged(champion, challenger)
    expected = ttest_rel(champion, challenger, alternative="greater").pvalue
    assert verdict.p_value == pytest.approx(expected, rel=1e-9)
    shuffled = random.permutation(challenger)
    assert judged(champion, shuffled).p_value > 10 * verdict.p_value


@pytest.mark.parametrize(
    ("factor", "promoted", "reason"),
    [
        (1.0, False, "not better: mean error 0.015 after 0.015, 0.0% lower"),
        (1.05, False, "not better: mean error 0.01575 after 0.015, 5.0% higher"),
        (0.995, False, "too little gained (asked for 1.0%): mean error 0.01493 after 0.015"),
        (0.9, True, "better: mean error 0.0135 after 0.015, 10.0% lower, p ="),
    ],
)
def test_the_reason_is_told_in_words(factor: float, promoted: bool, reason: str) -> None:
    champion = np.linspace(0.01, 0.02, 11)
    verdict = judged(champion, factor * champion)
    assert verdict.promoted == promoted
    assert verdict.reason.startswith(reason)


def test_chance_is_named_as_such() -> None:
    champion = np.tile([0.01, 0.05, 0.02, 0.04], 3)
    challenger = np.tile([0.02, 0.01, 0.03, 0.03], 3)
    verdict = judged(champion, challenger)
    assert not verdict.promoted
    assert verdict.reason.startswith("better by chance, perhaps (p = ")


def test_too_few_samples_are_said_to_be_that() -> None:
    champion = np.linspace(0.01, 0.02, 4)
    verdict = judged(champion, 0.1 * champion)
    assert not verdict.promoted
    assert verdict.reason.startswith("too few samples to judge: of 4 a challenger that is no ")
    assert "in one of 16 cases, and 0.005 is asked for" in verdict.reason
    assert judged(*np.outer([1.0, 0.1], np.linspace(0.01, 0.02, 8))).promoted


def test_a_lower_mean_does_not_hide_a_worse_tail() -> None:
    champion = np.full(20, 0.02) + np.linspace(0, 1e-4, 20)
    challenger = np.where(np.arange(20) < 18, 0.5, 1.3) * champion
    verdict = judged(champion, challenger)
    assert verdict.p_value < 0.005
    assert not verdict.promoted
    assert "worse than allowed: the worst tenth 0.02" in verdict.reason
    assert worst_tenth(np.arange(20.0)) == 18.5


@pytest.mark.parametrize(
    ("what", "before", "after"),
    [
        ({"parts": "boundary"}, 0.02, 0.03),
        ({"costs": "parameters"}, 1e6, 2e6),
        ({"costs": "seconds"}, 0.01, 0.5),
    ],
)
def test_a_better_error_does_not_pay_for_everything(
    what: dict[str, str], before: float, after: float
) -> None:
    ((kind, name),) = what.items()
    locked = np.linspace(0.01, 0.02, 11)
    champion = Measured(locked=locked, **{kind: {name: before}})
    challenger = Measured(locked=0.5 * locked, **{kind: {name: after}})
    verdict = decide(champion, challenger, PromotionRule())
    assert verdict.outcome == "keep"
    assert f"worse than allowed: {name} {after:.4g} after {before:.4g}" in verdict.reason
    swapped = decide(
        challenger, Measured(locked=0.4 * locked, **{kind: {name: before}}), PromotionRule()
    )
    assert swapped.promoted


def test_a_challenger_that_is_worse_on_the_new_samples_is_kept_away() -> None:
    locked, new = np.linspace(0.01, 0.02, 11), np.linspace(0.02, 0.03, 6)
    champion = Measured(locked=locked, new=new)
    verdict = decide(champion, Measured(locked=0.8 * locked, new=1.5 * new), PromotionRule())
    assert verdict.outcome == "keep"
    assert "worse than allowed: the new samples" in verdict.reason
    few = Measured(locked=locked, new=new[:3])
    fine = decide(few, Measured(locked=0.8 * locked, new=1.5 * new[:3]), PromotionRule())
    assert fine.promoted
    assert "on 3 new samples mean error" in fine.reason


def test_a_gain_on_the_new_samples_alone_is_for_a_person_to_judge() -> None:
    locked, new = np.linspace(0.01, 0.02, 20), np.linspace(0.05, 0.06, 12)
    champion = Measured(locked=locked, new=new)
    verdict = decide(champion, Measured(locked=1.02 * locked, new=0.5 * new), PromotionRule())
    assert verdict.outcome == "ask"
    assert verdict.reason.startswith("better on the 12 new samples alone: mean error 0.0275")
    assert "the champion's error there is 3.7 times that on the locked" in verdict.reason
    forgetful = decide(champion, Measured(locked=1.3 * locked, new=0.5 * new), PromotionRule())
    assert forgetful.outcome == "keep"


def test_a_control_tells_what_the_samples_gave_and_what_the_epochs() -> None:
    locked = np.full(11, 0.02) + np.linspace(0, 1e-4, 11)
    champion, challenger = Measured(locked=locked), Measured(locked=0.6 * locked)
    verdict = decide(champion, challenger, PromotionRule(), control=0.7 * locked)
    assert verdict.promoted
    assert verdict.reason.endswith(
        "the epochs gave +30.0% of the champion's error, the samples +10.0%"
    )
    assert verdict.control_error == pytest.approx(0.7 * locked.mean())


def test_what_is_no_number_is_never_promoted() -> None:
    fine, broken = np.full(11, 0.01), np.array([0.01, np.nan, 0.01, 0.01, 0.01] * 2 + [0.01])
    assert not judged(fine, broken).promoted
    assert judged(broken, fine).promoted


def test_one_sample_decides_nothing() -> None:
    with pytest.raises(ValueError, match="two samples at least"):
        judged(np.ones(1), np.ones(1))
