"""Samples in memory, cut into batches in an order that depends on the seed and epoch alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Fields:
    """Inputs `(samples, *space, n_inputs)` and targets `(samples, *space, n_outputs)`."""

    inputs: Float[Tensor, "samples *space n_inputs"]
    targets: Float[Tensor, "samples *space n_outputs"]

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Batches:
    """Shuffled batches of an epoch; the last one holds what is left."""

    fields: Fields
    batch_size: int
    seed: int

    def __len__(self) -> int:
        return ceil(len(self.fields) / self.batch_size)

    def epoch(self, number: int) -> Iterator[Fields]:
        """Yield the batches of one epoch, the same for the same seed and number.

        The order is not drawn from a running generator, so a resumed run sees the same one.
        """
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        order = torch.randperm(len(self.fields), generator=generator)
        for indices in order.split(self.batch_size):
            yield Fields(self.fields.inputs[indices], self.fields.targets[indices])
