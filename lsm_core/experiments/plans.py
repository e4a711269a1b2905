"""Which samples of which problem: the data of an experiment, before any of it exists."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.catalogue import BENCHMARKS
from lsm_core.benchmarks.given import GivenProblem
from lsm_core.configuration import from_plain

Split = Literal["train", "validation", "test"]
Origin = Literal["generated", "official", "exported", "given"]
"""Where samples come from: our solvers, published files, files that we wrote like those, or files
of the user's own."""

FIRST_SEED: dict[Split, int] = {"train": 0, "validation": 1_000_000, "test": 2_000_000}
"""Every part draws from seeds of its own: a larger training set contains the smaller ones and is
measured on the same test samples."""


@dataclass(frozen=True, kw_only=True)
class DataPlan:
    """A problem and how many of its samples go into each part."""

    benchmark: Benchmark
    n_train: int
    n_validation: int
    n_test: int
    samples_per_block: int = 64
    keep_each_sample: bool = False
    """Whether a solved sample is kept before its block is whole: for problems of seconds each."""

    @property
    def origin(self) -> Origin:
        """Return where the samples come from."""
        return "generated"

    def at_resolution(self, n_points: int) -> "DataPlan":
        """Return the plan with the same samples on another number of points along each axis."""
        return replace(self, benchmark=self.benchmark.at_resolution(n_points))

    @property
    def split_sizes(self) -> dict[Split, int]:
        """Return the number of samples of each part, in the order they are stored."""
        return {"train": self.n_train, "validation": self.n_validation, "test": self.n_test}

    def seed_of(self, sample: int) -> int:
        """Return the seed of a stored sample."""
        for split, size in self.split_sizes.items():
            if sample < size:
                return FIRST_SEED[split] + sample
            sample -= size
        raise IndexError(f"the plan has {sum(self.split_sizes.values())} samples")

    def to_plain(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {
            "benchmark": self.benchmark.name,
            "parameters": self.benchmark.parameters(),
            "split_sizes": self.split_sizes,
            "first_seeds": FIRST_SEED,
        }


@dataclass(frozen=True, kw_only=True)
class ConvertedPlan(DataPlan):
    """A plan that takes the first samples of each part of a dataset made of files.

    The problem says which fields on which grid; no solver makes any of the samples. `recipe` is
    the hash of the files and of the way they are converted, `dataset` the name of what comes of
    it. Both are empty as long as the files are not at hand.
    """

    recipe: str = ""
    dataset: str = ""

    def seed_of(self, sample: int) -> int:
        """Raise LookupError: these samples have no seeds."""
        raise LookupError(f"sample {sample} of {self.origin} files has no seed")

    def to_plain(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        plain = super().to_plain()
        del plain["first_seeds"]
        return plain


@dataclass(frozen=True, kw_only=True)
class GivenPlan(ConvertedPlan):
    """A plan of samples that somebody brought."""

    @property
    def origin(self) -> Origin:
        """Return where the samples come from."""
        return "given"

    def to_plain(self) -> dict[str, Any]:
        """Return the plan as plain data; with it the problem, of which there is no class."""
        own = ("recipe", "dataset", "samples_per_block")
        return {**super().to_plain(), "given": {name: getattr(self, name) for name in own}}


@dataclass(frozen=True, kw_only=True)
class OfficialPlan(ConvertedPlan):
    """A plan that takes the first samples of each part of official files."""

    stride: int
    """Every n-th point of the files is a point of the problem."""
    is_exported: bool = False
    """Whether the files were written from generated data and only look like the published ones."""

    @property
    def origin(self) -> Origin:
        """Return where the samples come from."""
        return "exported" if self.is_exported else "official"

    def to_plain(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        own = ("stride", "is_exported", "recipe", "dataset")
        return {**super().to_plain(), "official": {name: getattr(self, name) for name in own}}


@dataclass(frozen=True, kw_only=True)
class AddedSamples:
    """Samples that came in one file, named by the hash of its content."""

    digest: str
    n_samples: int


@dataclass(frozen=True, kw_only=True)
class ExtendedPlan(DataPlan):
    """A plan whose training part ends with samples that no seed makes.

    `n_train` counts those of seeds, or of the files that stand for them. Validation and
    test samples are those of any plan of the problem, so that models of either are measured on the
    same.
    """

    added: tuple[AddedSamples, ...] = ()
    official: ConvertedPlan | None = None
    """Whose samples are extended, if they are not those of seeds."""

    @property
    def origin(self) -> Origin:
        """Return where the samples come from to which others were added."""
        return "generated" if self.official is None else self.official.origin

    @property
    def split_sizes(self) -> dict[Split, int]:
        """Return the number of samples of each part, in the order they are stored."""
        n_added = sum(each.n_samples for each in self.added)
        return {**super().split_sizes, "train": self.n_train + n_added}

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
    if isinstance(plan, ConvertedPlan):
        common = {field.name: getattr(plan, field.name) for field in fields(DataPlan)}
        return ExtendedPlan(**common, official=plan, added=added)
    return ExtendedPlan(**{**vars(plan), "added": added})


def benchmark_from_plain(plain: Mapping[str, Any]) -> Benchmark:
    """Return the problem that a plan, as plain data, is of; ValueError if it is unknown."""
    name = plain["benchmark"]
    if "given" in plain:
        return from_plain(GivenProblem, plain["parameters"])
    if name not in BENCHMARKS:
        raise ValueError(f"there is no benchmark {name!r}; known are {', '.join(BENCHMARKS)}")
    return from_plain(BENCHMARKS[name], plain["parameters"])
