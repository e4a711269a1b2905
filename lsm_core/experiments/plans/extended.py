"""A data plan with samples beside those of its seeds: measured, or computed elsewhere."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.catalogue import BENCHMARKS
from lsm_core.configuration import from_plain
from lsm_core.experiments.plans.official import OfficialPlan
from lsm_core.experiments.plans.plan import DataPlan, Origin, Split
from lsm_core.experiments.protocols import data_plan
from lsm_core.names import PresetName


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

    def to_plain(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        plain = super().to_plain() if self.official is None else self.official.to_plain()
        added = [asdict(each) for each in self.added]
        return {**plain, "split_sizes": self.split_sizes, "added": added}


def extended(plan: DataPlan, added: tuple[AddedSamples, ...]) -> DataPlan:
    """Return a plan with added samples; the plan itself if there are none."""
    if not added:
        return plan
    if isinstance(plan, OfficialPlan):
        common = {field.name: getattr(plan, field.name) for field in fields(DataPlan)}
        return ExtendedPlan(**common, official=plan, added=added)
    return ExtendedPlan(**{**vars(plan), "added": added})


def plan_from_plain(plain: Mapping[str, Any], preset: PresetName) -> DataPlan:
    """Return the plan of any kind that `to_plain` wrote.

    How its samples are cut into blocks is that of the preset: it changes none of them.
    """
    benchmark = benchmark_from_plain(plain)
    sizes = plain["split_sizes"]
    added = added_from_plain(plain.get("added", []))
    plan = replace(
        data_plan(preset, plain["benchmark"]),
        benchmark=benchmark,
        n_train=sizes["train"] - sum(each.n_samples for each in added),
        n_validation=sizes["validation"],
        n_test=sizes["test"],
    )
    if "official" in plain:
        plan = OfficialPlan(**{**vars(plan), **plain["official"]})
    return extended(plan, added)


def added_from_plain(plain: Iterable[Mapping[str, Any]]) -> tuple[AddedSamples, ...]:
    """Return added samples from plain data."""
    return tuple(AddedSamples(**each) for each in plain)


def benchmark_from_plain(plain: Mapping[str, Any]) -> Benchmark:
    """Return the problem that a plan, as plain data, is of; ValueError if it is unknown."""
    name = plain["benchmark"]
    if name not in BENCHMARKS:
        raise ValueError(f"there is no benchmark {name!r}; known are {', '.join(BENCHMARKS)}")
    return from_plain(BENCHMARKS[name], plain["parameters"])
