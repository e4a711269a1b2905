"""Samples cut into batches, in an order that depends on the seed and epoch alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Fields:
    """Inputs `(samples, *space, n_inputs)` and targets `(samples, *space, n_outputs)`.

    Where points count differently each has a weight, and 0 says that a sample has no point there:
    inputs and targets may be anything at such a place.
    """

    inputs: Float[Tensor, "samples *space n_inputs"]
    targets: Float[Tensor, "samples *space n_outputs"]
    weights: Float[Tensor, "samples *space"] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device) -> "Fields":
        """Return the fields on a device; from pinned memory without waiting for the copy."""
        return self._each(lambda values: values.to(device, non_blocking=True))

    def pinned(self) -> "Fields":
        """Return the fields in memory of the host that a GPU reads without help."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Fields":
        weights = None if self.weights is None else change(self.weights)
        return Fields(change(self.inputs), change(self.targets), weights)

    def split(self, size: int) -> list["Fields"]:
        """Return the samples in parts of at most `size`; no parts if there are no samples."""
        if not len(self):
            return []
        return [self[first : first + size] for first in range(0, len(self), size)]

    def __getitem__(self, samples: slice | Int[Tensor, " chosen"]) -> "Fields":
        """Return some of the samples."""
        weights = None if self.weights is None else self.weights[samples]
        return Fields(self.inputs[samples], self.targets[samples], weights)

    def at_points(self) -> "Fields":
        """Return what is there at all: each point a sample, if some have no weight."""
        if self.weights is None:
            return self
        there = self.weights > 0
        return Fields(self.inputs[there], self.targets[there])


@runtime_checkable
class Batches(Protocol):
    """The training samples, as the loop sees them."""

    @property
    def n_samples(self) -> int:
        """Return the number of samples of an epoch."""

    def __len__(self) -> int:
        """Return the number of batches of an epoch; the last one holds what is left."""

    def epoch(self, number: int, first: int = 0) -> Iterator[Fields]:
        """Yield the batches of one epoch from the `first` on, always the same ones.

        The order is not drawn from a running generator, so a resumed run sees the same one.
        """


@dataclass(frozen=True)
class SplitFields:
    """What one run reads: batches to train on, and parts of every split to measure on."""

    batches: Batches
    parts: Mapping[str, Iterable[Fields]]
    """Of `train`, `validation` and `test`; they can be gone through again and again."""
    in_memory: bool


@dataclass(frozen=True)
class BatchesInMemory:
    """Shuffled batches of fields that are all in memory, of the host or of the device."""

    fields: Fields
    batch_size: int
    order: Callable[[int], Int[Tensor, " samples"]]
    """From the number of an epoch to the order of its samples."""

    @property
    def n_samples(self) -> int:
        """Return the number of samples."""
        return len(self.fields)

    def __len__(self) -> int:
        return ceil(len(self.fields) / self.batch_size)

    def epoch(self, number: int, first: int = 0) -> Iterator[Fields]:
        """Yield the batches of one epoch from the `first` on."""
        # Brought to the samples once an epoch, where every batch would wait for its own.
        order = self.order(number)[first * self.batch_size :].to(self.fields.inputs.device)
        for indices in order.split(self.batch_size) if len(order) else ():
            yield self.fields[indices]


def permutations(n_samples: int, seed: int) -> Callable[[int], Int[Tensor, " samples"]]:
    """Return the function from epochs to random orders of all samples."""

    def order(epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        return torch.randperm(n_samples, generator=generator)

    return order
