"""Batches on their way to a device; without a GPU they pass through the same code to a CPU."""

import threading
from collections.abc import Iterator

import pytest
import torch

from lsm_core.training.batches import Batches, BatchesInMemory, Fields, permutations
from lsm_core.training.feeding import BatchesAhead, brought_to, fits_on

CPU = torch.device("cpu")


def batches() -> BatchesInMemory:
    numbers = torch.arange(10.0).reshape(10, 1, 1)
    return BatchesInMemory(Fields(numbers, -numbers), 3, permutations(10, seed=0))


def values(found: Iterator[Fields]) -> list[list[float]]:
    return [batch.inputs.flatten().tolist() for batch in found]


@pytest.mark.parametrize("first", [0, 2, 4])
def test_batches_that_come_ahead_are_the_same_in_the_same_order(first: int) -> None:
    ahead = BatchesAhead(batches(), CPU)
    assert isinstance(ahead, Batches)
    assert (len(ahead), ahead.n_samples) == (4, 10)
    for epoch in range(2):
        assert values(ahead.epoch(epoch, first)) == values(batches().epoch(epoch, first))


class Noted:
    """Batches that tell how many of them were taken."""

    n_samples = 4

    def __init__(self) -> None:
        self.taken = threading.Semaphore(0)
        self.n_taken = 0

    def __len__(self) -> int:
        return 4

    def epoch(self, number: int, first: int = 0) -> Iterator[Fields]:
        for value in range(first, 4):
            self.n_taken += 1
            self.taken.release()
            yield Fields(torch.full((1, 1, 1), float(value)), torch.zeros(1, 1, 1))


def test_the_next_batch_is_made_while_one_is_used_and_no_more() -> None:
    noted = Noted()
    coming = BatchesAhead(noted, CPU).epoch(0)
    next(coming)
    assert noted.taken.acquire(timeout=30)
    assert noted.taken.acquire(timeout=30)  # the second was made without being asked for
    assert noted.n_taken == 2
    coming.close()


def test_an_error_of_the_store_is_raised_where_the_batch_is_wanted() -> None:
    class Broken(Noted):
        def epoch(self, number: int, first: int = 0) -> Iterator[Fields]:
            yield from list(super().epoch(number, first))[:1]
            raise OSError("the store is away")

    coming = BatchesAhead(Broken(), CPU).epoch(0)
    next(coming)
    with pytest.raises(OSError, match="the store is away"):
        next(coming)


def test_on_a_cpu_nothing_is_brought_anywhere() -> None:
    mine = batches()
    assert brought_to(CPU, mine) is mine
    assert not fits_on(CPU, mine.fields)


def test_samples_stay_on_a_gpu_that_has_four_times_the_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = batches().fields  # 80 bytes
    gpu = torch.device("cuda", 0)
    for free, fits in ((319, False), (320, True)):
        monkeypatch.setattr("torch.cuda.mem_get_info", lambda _, free=free: (free, 10**9))
        assert fits_on(gpu, fields) is fits
    assert isinstance(brought_to(gpu, batches()), BatchesAhead)
