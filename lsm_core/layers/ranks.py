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


def summed(values: Tensor) -> Tensor:
    """Return the sum over ranks, with a gradient: what each rank did with it is summed, too."""
    if n_ranks() == 1:
        return values
    result: Tensor = _Sum.apply(values)
    return result


def sum_in_place(tensors: Iterable[Tensor]) -> None:
    """Replace every tensor by its sum over ranks, all of them in one message."""
    together = list(tensors)
    if n_ranks() == 1 or not together:
        return
    message = torch.cat([tensor.reshape(-1) for tensor in together])
    distributed.all_reduce(message)
    parts = message.split([tensor.numel() for tensor in together])
    for tensor, part in zip(together, parts, strict=True):
        tensor.copy_(part.view_as(tensor))


def gathered(value: Any) -> list[Any]:
    """Return the plain value of every rank, by rank."""
    if n_ranks() == 1:
        return [value]
    values: list[Any] = [None] * n_ranks()
    distributed.all_gather_object(values, value)
    return values


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        distributed.all_reduce(total)
        return total
