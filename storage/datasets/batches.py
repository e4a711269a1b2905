"""Batches of a part of a dataset, read from the store by whole blocks.

batches = Batches(dataset.part("train", ["initial", "final"]), batch_size=20, seed=0)
for arrays in batches.epoch(3):
    arrays["initial"]                             # (20, *shape)
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from math import ceil
from typing import Any, TypeAlias

import numpy as np
import zarr

from storage.datasets.reader import Arrays, Part

Indices: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

DEFAULT_MEMORY = 2**30


@dataclass(frozen=True)
class _Pool:
    """Some blocks that are read together, and the order in which their samples are used."""

    blocks: tuple[range, ...]
    order: Indices


class Batches:
    """Shuffled batches of an epoch; the last one holds what is left.

    The order follows from the seed, the number of the epoch and `window` (in bytes), never from
    how much is held in memory or how many threads read: it is the same after a resume and on any
    machine.

    A part that fits into the window is permuted as a whole. Of a larger one, blocks come in random
    order; as many as fit into a third of the window form a pool, and samples are permuted within
    their pool. Pools are read one by one, the next while the last is used; a block is always read
    whole, even if it is larger. `in_memory` says whether the part fits into `memory`: then a caller
    reads it once and takes only the `order` from here.
    """

    def __init__(
        self,
        part: Part,
        *,
        batch_size: int,
        seed: int,
        memory: int = DEFAULT_MEMORY,
        window: int | None = None,
        n_readers: int = 2,
    ) -> None:
        window = memory if window is None else window
        if batch_size < 1 or n_readers < 1:
            raise ValueError(
                f"batch_size and n_readers must be at least 1, got {batch_size} and {n_readers}"
            )
        self._part = part
        self._batch_size = batch_size
        self._seed = seed
        self._n_readers = n_readers
        self._arrays = part.arrays()
        sample_bytes = sum(_sample_bytes(array) for array in self._arrays.values())
        self.n_bytes = sample_bytes * len(part)
        self.in_memory = self.n_bytes <= memory
        if window > memory and not self.in_memory:
            raise ValueError(
                f"{self.n_bytes} bytes of samples do not fit into the memory budget of {memory}, "
                f"and neither does the window of {window} to shuffle them in; "
                "take a smaller window or a larger budget"
            )
        self._sample_bytes = sample_bytes
        self._window = window

    def __len__(self) -> int:
        return ceil(len(self._part) / self._batch_size)

    def epoch(self, number: int) -> Iterator[Arrays]:
        """Yield the batches of one epoch."""
        size = self._batch_size
        n_rest = 0
        rest: Arrays = {}
        for pool, arrays in self._read_ahead(self._pools(number)):
            # What the last pool left over goes into the free rows before the samples of this one.
            for name, values in rest.items():
                arrays[name][size - n_rest : size] = values
            order = np.concatenate([np.arange(size - n_rest, size), size + pool.order])
            n_full = len(order) // size * size
            for start in range(0, n_full, size):
                yield _take(arrays, order[start : start + size])
            n_rest, rest = len(order) - n_full, _take(arrays, order[n_full:])
            del arrays  # before the next pool is waited for, while the one after it is read
        if n_rest:
            yield rest

    def order(self, number: int) -> Indices:
        """Return the samples of one epoch in the order of its batches."""
        orders = [
            np.concatenate([np.array(block) for block in pool.blocks])[pool.order]
            for pool in self._pools(number)
        ]
        return np.concatenate(orders) if orders else np.arange(0)

    def _pools(self, number: int) -> list[_Pool]:
        random = np.random.default_rng([self._seed, number])
        blocks = self._blocks()
        if self.n_bytes <= self._window:
            return [_Pool(blocks, random.permutation(len(self._part)))] if blocks else []
        shuffled = [blocks[index] for index in random.permutation(len(blocks))]
        together = max(1, self._window // 3 // (max(map(len, blocks)) * self._sample_bytes))
        groups = [shuffled[i : i + together] for i in range(0, len(shuffled), together)]
        return [_Pool(tuple(group), random.permutation(sum(map(len, group)))) for group in groups]

    def _blocks(self) -> tuple[range, ...]:
        """Return the runs of samples that lie in one block each, counted within the part."""
        size = int(self._part.dataset.attributes["samples_per_block"])
        start = self._part.start
        edges = range((start // size + 1) * size, start + len(self._part), size)
        bounds = [0, *(edge - start for edge in edges), len(self._part)]
        return tuple(range(*pair) for pair in pairwise(bounds) if range(*pair))

    def _read_ahead(self, pools: list[_Pool]) -> Iterator[tuple[_Pool, Arrays]]:
        """Yield pools with their samples, after `batch_size` free rows; read one pool ahead."""
        size = self._batch_size
        with ThreadPoolExecutor(1) as ahead, ThreadPoolExecutor(self._n_readers) as readers:
            coming = None
            for pool, following in zip_longest(pools, pools[1:]):
                arrays = self._read(pool, readers, size) if coming is None else coming.result()
                if following is not None:
                    coming = ahead.submit(self._read, following, readers, size)
                yield pool, arrays
                del arrays

    def _read(self, pool: _Pool, readers: ThreadPoolExecutor, n_free: int) -> Arrays:
        """Return the samples of a pool after some free rows, each block read by one slice."""
        n_rows = n_free + len(pool.order)
        target = {
            name: np.empty((n_rows, *array.shape[1:]), array.dtype)
            for name, array in self._arrays.items()
        }

        def read(name: str, block: range, row: int) -> None:
            start = self._part.start + block.start
            window = slice(start, start + len(block))
            target[name][row : row + len(block)] = self._part.dataset.read(
                self._arrays[name], window
            )

        rows = accumulate(map(len, pool.blocks), initial=n_free)
        jobs = [
            readers.submit(read, name, block, row)
            for block, row in zip(pool.blocks, rows, strict=False)
            for name in target
        ]
        for job in jobs:
            job.result()
        return target


def _sample_bytes(array: zarr.Array[Any]) -> int:
    return int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize


def _take(arrays: Arrays, indices: Indices) -> Arrays:
    return {name: values[indices] for name, values in arrays.items()}
