"""Which samples of which problem: the data of an experiment, before any of it exists."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from lsm_core.benchmarks.benchmark import Benchmark

Split = Literal["train", "validation", "test"]
Origin = Literal["generated", "official", "exported"]
"""Where samples come from: our solvers, published files, or files that we wrote like those."""

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
