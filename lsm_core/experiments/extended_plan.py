"""A data plan with samples beside those of its seeds: measured, or computed elsewhere."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from lsm_core.experiments.data_plan import DataPlan, Split


@dataclass(frozen=True, kw_only=True)
class AddedSamples:
    """Samples that came in one file, named by the hash of its content."""

    digest: str
    n_samples: int


@dataclass(frozen=True, kw_only=True)
class ExtendedPlan(DataPlan):
    """A plan whose training part ends with samples that no seed makes.

    `n_train` counts those of seeds. Validation and test samples are those of any plan of the
    problem, so that models of either are measured on the same.
    """

    added: tuple[AddedSamples, ...] = ()

    @property
    def n_added(self) -> int:
        """Return how many samples no seed makes."""
        return sum(each.n_samples for each in self.added)

    @property
    def split_sizes(self) -> dict[Split, int]:
        """Return the number of samples of each part, in the order they are stored."""
        return {**super().split_sizes, "train": self.n_train + self.n_added}

    def added_among(self, samples: range) -> Iterator[tuple[int, str, int]]:
        """Yield those of some stored samples that were added: number, file, number in the file."""
        first = self.n_train
        for each in self.added:
            for sample in range(
                max(first, samples.start), min(first + each.n_samples, samples.stop)
            ):
                yield sample, each.digest, sample - first
            first += each.n_samples

    def describe(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {**super().describe(), "added": [asdict(each) for each in self.added]}


def extended(plan: DataPlan, added: tuple[AddedSamples, ...]) -> DataPlan:
    """Return a plan with added samples; the plan itself if there are none."""
    if not added:
        return plan
    return ExtendedPlan(**{**vars(plan), "added": added})
