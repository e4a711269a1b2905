"""Results of the same run from several seeds."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from statistics import fmean, stdev
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = Mapping[str, Any]


@dataclass(frozen=True)
class OverSeeds:
    """A figure of each seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the mean; infinite if every run failed."""
        return fmean(self.values) if self.values else float("inf")

    @property
    def deviation(self) -> float:
        """Return the standard deviation of a sample; zero of a single seed."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    def over(self, scale: float) -> "OverSeeds":
        """Return all figures divided by one."""
        return OverSeeds(tuple(value / scale for value in self.values))

    def text(self) -> str:
        """Return the mean to four digits and the deviation to two."""
        if not self.values:
            return "failed"
        deviation = f" ± {self.deviation:.2g}" if len(self.values) > 1 else ""
        return f"{self.mean:.4g}{deviation}"


def finished(results: Iterable[Result]) -> list[Result]:
    """Return the results that have figures."""
    return [result for result in results if "error" not in result]


def grouped(results: Iterable[Result], key: Callable[[Result], Key]) -> dict[Key, list[Result]]:
    """Return results by a key, in the order they came in."""
    groups: dict[Key, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def error_over_seeds(results: Iterable[Result]) -> OverSeeds:
    """Return the test errors of results that differ in their seeds."""
    return OverSeeds(tuple(result["test"]["rel_l2"] for result in finished(results)))


def difference(ours: float, published: float | None) -> str:
    """Return by how much a figure is above a published one, or a dash where there is none."""
    return "–" if published is None or not isfinite(ours) else f"{ours / published - 1:+.0%}"
