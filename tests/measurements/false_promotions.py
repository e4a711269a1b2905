"""How often a year of judgements promotes a challenger that is no better: `decide`, as it is used.

    python -m tests.measurements.false_promotions [YEARS]

Every night another challenger is judged on the same locked samples, at the level that the budget
leaves. All are equal: their true errors have one mean. Three kinds of errors are tried: challengers
that differ from the champion as two trainings do; such that differ much more; and such that are
a little better on most samples and bad on a few, the worst that a t-test can meet.
"""

import sys
from collections.abc import Callable

import numpy as np

from lsm_core.evaluation.promotion import Measured, PromotionRule, decide, next_level

DAY = 24 * 3600 * 1000
NIGHTS = 365
Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def alike(random: np.random.Generator, base: np.ndarray) -> np.ndarray:
    """Return errors of a training like the others."""
    return base * random.lognormal(0.0, 0.15, len(base))


def unlike(random: np.random.Generator, base: np.ndarray) -> np.ndarray:
    """Return errors of a training that has little in common with the others."""
    return base * random.lognormal(0.0, 0.6, len(base))


def bad_on_a_few(random: np.random.Generator, base: np.ndarray) -> np.ndarray:
    """Return errors whose mean is that of the others, but one in twenty is 2.9 times as large."""
    bad = random.random(len(base)) < 0.05
    return base * np.where(bad, 2.9, 0.9) * random.lognormal(0.0, 0.05, len(base))


def equal_year(
    random: np.random.Generator, n_samples: int, draw: Draw = alike, least_gain: float = 0.01
) -> int:
    """Return how many equal challengers a year promotes, one judged each night."""
    base = 0.01 * random.lognormal(0.0, 0.6, n_samples)
    champion, promoted = draw(random, base), 0
    spent: list[tuple[int, float]] = []
    for night in range(NIGHTS):
        level = next_level(spent, night * DAY)
        spent.append((night * DAY, level))
        challenger = draw(random, base)
        rule = PromotionRule(level=level, least_gain=least_gain)
        if decide(Measured(locked=champion), Measured(locked=challenger), rule).promoted:
            champion, promoted = challenger, promoted + 1
    return promoted


def main(n_years: int) -> None:
    """Print the promotions a year for several kinds and numbers of samples."""
    print(f"promotions of equal challengers a year, over {n_years} years of {NIGHTS} nights")
    for draw in (alike, unlike, bad_on_a_few):
        for n_samples in (16, 50, 200):
            random = np.random.default_rng(n_samples)
            years = [equal_year(random, n_samples, draw) for _ in range(n_years)]
            error = np.std(years) / n_years**0.5
            print(
                f"{draw.__name__:<13} {n_samples:>4} samples  {np.mean(years):.4f} +- {error:.4f}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
