"""A data plan with samples beside those of its seeds: measured, or computed elsewhere."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from lsm_core.experiments.data_plan import DataPlan, Origin, Split
from lsm_core.experiments.official_plan import OfficialPlan


@dataclass(frozen=True, kw_only=True)
class AddedSamples:
    """Samples that came in one file, named by the hash of its content."""

    digest: str
    n_samples: int


@dataclass(frozen=True, kw_only=True)
class ExtendedPlan(DataPlan):
    """A plan whose training part ends with samples that no seed makes.

    `n_train` counts those of seeds, or of the official files that stand for them. Validation and
    test samples are those of any plan of the problem, so that models of either are measured on the
    same.
    """

    added: tuple[AddedSamples, ...] = ()
    official: OfficialPlan | None = None
    """Whose samples are extended, if they are not those of seeds."""

    @property
    def origin(self) -> Origin:
        """Return where the samples come from to which others were added."""
        return "generated" if self.official is None else self.official.origin

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
        described = super().describe() if self.official is None else self.official.describe()
        added = [asdict(each) for each in self.added]
        return {**described, "split_sizes": self.split_sizes, "added": added}


def extended(plan: DataPlan, added: tuple[AddedSamples, ...]) -> DataPlan:
    """Return a plan with added samples; the plan itself if there are none."""
    if not added:
        return plan
    if isinstance(plan, OfficialPlan):
        common = {field.name: getattr(plan, field.name) for field in fields(DataPlan)}
        return ExtendedPlan(**common, official=plan, added=added)
    return ExtendedPlan(**{**vars(plan), "added": added})
