"""Samples of a stored dataset as the fields that models map, in memory or read as they are used."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil, prod
from typing import Any

import torch
from numpy.typing import NDArray

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.given import WEIGHT, GivenProblem
from lsm_core.experiments.plans import Split
from lsm_core.problems.fields import stack_channels
from lsm_core.surrogates.surrogate import samples_at_once
from lsm_core.training.batches import BatchesInMemory, Fields, SplitFields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.feeding import brought_to, fits_on
from storage.datasets.batches import Batches as StoredBatches
from storage.datasets.reader import Dataset, Part

CPU = torch.device("cpu")
OTHERS: tuple[Split, ...] = ("validation", "test")


def fields_of(arrays: dict[str, NDArray[Any]], benchmark: Benchmark) -> Fields:
    """Return the inputs and targets of samples as tensors."""
    space = dict(zip(benchmark.space, benchmark.shape.space, strict=True))
    inputs = stack_channels(arrays, benchmark.with_role("input"), space)
    targets = stack_channels(arrays, benchmark.with_role("target"), space)
    weights = torch.tensor(arrays[WEIGHT]) if WEIGHT in arrays else None
    return Fields(torch.tensor(inputs), torch.tensor(targets), weights)


def names_of(benchmark: Benchmark) -> list[str]:
    """Return the variables that a model needs, and what says how much a point counts."""
    if isinstance(benchmark, GivenProblem):
        return benchmark.names
    return [v.name for v in (*benchmark.with_role("input"), *benchmark.with_role("target"))]


def part_of(dataset: Dataset, benchmark: Benchmark, split: Split, fraction: float = 1.0) -> Part:
    """Return the first samples of a split, with the variables that a model needs."""
    whole = dataset.part(split, names_of(benchmark))
    return replace(whole, size=ceil(fraction * len(whole)))


@dataclass(frozen=True)
class PartsOfStore:
    """The samples of a split, some at a time, read anew each time they are gone through."""

    part: Part
    benchmark: Benchmark

    def __iter__(self) -> Iterator[Fields]:
        size = samples_at_once(prod(self.benchmark.shape.space))
        for start in range(0, len(self.part), size):
            yield fields_of(self.part[start : start + size], self.benchmark)


@dataclass(frozen=True)
class BatchesOfStore:
    """Training batches read from the store while they are used."""

    stored: StoredBatches
    benchmark: Benchmark
    n_samples: int

    def __len__(self) -> int:
        return len(self.stored)

    def epoch(self, number: int, first: int = 0) -> Iterator[Fields]:
        """Yield the batches of one epoch from the `first` on."""
        for arrays in islice(self.stored.epoch(number), first, None):
            yield fields_of(arrays, self.benchmark)


def split_fields(
    dataset: Dataset,
    benchmark: Benchmark,
    config: TrainingConfig,
    seed: int,
    memory: int,
    device: torch.device = CPU,
) -> SplitFields:
    """Return the fields of a dataset, in memory if the training samples fit into the budget.

    On a GPU those are brought there once if they fit, and else batch by batch, each while the one
    before is trained on. Fields and their order are the same either way.
    """
    train = part_of(dataset, benchmark, "train", config.fraction)
    batch_size = config.batch_of(len(train))
    stored = StoredBatches(
        train,
        batch_size=batch_size,
        seed=seed,
        memory=memory,
        window=config.shuffle_bytes,
    )
    parts = {"train": train}
    parts |= {split: part_of(dataset, benchmark, split) for split in OTHERS}
    if not stored.in_memory:
        read = {split: PartsOfStore(part, benchmark) for split, part in parts.items()}
        of_store = BatchesOfStore(stored, benchmark, len(train))
        return SplitFields(brought_to(device, of_store), read, in_memory=False)
    fields = {split: fields_of(part[:], benchmark) for split, part in parts.items()}
    stays = fits_on(device, fields["train"])
    batches = BatchesInMemory(
        fields["train"].to(device) if stays else fields["train"],
        batch_size,
        lambda epoch: torch.from_numpy(stored.order(epoch)),
    )
    size = samples_at_once(prod(benchmark.shape.space))
    return SplitFields(
        batches if stays else brought_to(device, batches),
        {split: each.split(size) for split, each in fields.items()},
        in_memory=True,
    )
