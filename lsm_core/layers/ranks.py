"""Sums over the processes that train one model together, each on its share of a batch.

Without a process group there is one rank, and every sum is what it was.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, distributed


def n_ranks() -> int:
    """Return how many processes train together."""
    ready = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if ready else 1


def rank() -> int:
    """Return the number of this process among them; 0 saves and reports."""
    return distributed.get_rank() if n_ranks() > 1 else 0


def sum_in_place(tensors: Iterable[Tensor]) -> None:
    """Replace every tensor by its sum over ranks, all of them in one message."""
    together = list(tensors)
    if n_ranks() == 1 or not together:
        return
    message = torch.cat([tensor.reshape(-1) for tensor in together])
    distributed.all_reduce(message)
    parts = message.split([tensor.numel() for tensor in together])
    # In one launch, where each copy would have its own.
    torch._foreach_copy_(
        together, [part.view_as(tensor) for tensor, part in zip(together, parts, strict=True)]
    )


def gathered(value: Any) -> list[Any]:
    """Return the plain value of every rank, by rank."""
    if n_ranks() == 1:
        return [value]
    values: list[Any] = [None] * n_ranks()
    distributed.all_gather_object(values, value)
    return values
