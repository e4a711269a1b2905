import threading
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from storage.datasets.batches import Batches
from storage.datasets.reader import Dataset, Part, open_dataset
from storage.errors import StoreUnavailable
from storage.location import Location
from tests.storage.datasets.small import N_POINTS, small_schema, write_whole

SAMPLE_BYTES = 2 * N_POINTS * 4
N_TRAIN = 56
# Three blocks of four samples form a pool.
SMALL_MEMORY = 3 * 3 * 4 * SAMPLE_BYTES


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    location = Location.parse(str(tmp_path_factory.mktemp("batches") / "small.zarr"))
    sizes = {"train": N_TRAIN, "validation": 6, "test": 9}
    write_whole(location, small_schema(split_sizes=sizes))
    return open_dataset(location)


def batches(dataset: Dataset, *, memory: int, split: str = "train", **settings: int) -> Batches:
    part = dataset.part(split, ["before", "after"])
    return Batches(part, **{"batch_size": 10, "seed": 3, "memory": memory, **settings})


def samples_of(epoch: list[dict[str, np.ndarray]]) -> list[list[int]]:
    """Return the numbers of the samples of every batch: the first value of `before`."""
    return [batch["before"][:, 0].astype(int).tolist() for batch in epoch]


@pytest.mark.parametrize("memory", [10**9, SMALL_MEMORY, 1], ids=["memory", "pools", "blocks"])
def test_an_epoch_gives_every_sample_once_with_its_own_values(
    memory: int, dataset: Dataset
) -> None:
    source = batches(dataset, memory=memory)
    assert source.in_memory is (memory == 10**9)
    epoch = list(source.epoch(0))
    assert [len(batch["after"]) for batch in epoch] == [10, 10, 10, 10, 10, 6]
    assert len(source) == 6
    assert sorted(chain(*samples_of(epoch))) == list(range(N_TRAIN))
    for batch in epoch:
        number = batch["before"][:, :1]
        np.testing.assert_array_equal(batch["after"], number * np.arange(N_POINTS))


@pytest.mark.parametrize("memory", [10**9, SMALL_MEMORY])
def test_the_order_is_known_before_anything_is_read(memory: int, dataset: Dataset) -> None:
    source = batches(dataset, memory=memory)
    for number in (0, 5):
        assert list(chain(*samples_of(list(source.epoch(number))))) == source.order(number).tolist()


@pytest.mark.parametrize("memory", [10**9, SMALL_MEMORY])
def test_the_order_does_not_depend_on_the_number_of_readers(memory: int, dataset: Dataset) -> None:
    orders = [
        samples_of(list(batches(dataset, memory=memory, n_readers=n).epoch(2))) for n in (1, 2, 5)
    ]
    assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize("memory", [10**9, SMALL_MEMORY])
def test_the_order_changes_with_seed_and_epoch_only(memory: int, dataset: Dataset) -> None:
    first = batches(dataset, memory=memory)
    list(first.epoch(0))
    # Epoch 1 is the same after epoch 0 and alone, as after a resume.
    assert samples_of(list(first.epoch(1))) == samples_of(
        list(batches(dataset, memory=memory).epoch(1))
    )
    orders = {tuple(first.order(number)) for number in range(5)}
    orders.add(tuple(batches(dataset, memory=memory, seed=4).order(0)))
    assert len(orders) == 6


def test_samples_are_mixed_across_the_blocks_of_a_pool(dataset: Dataset) -> None:
    order = batches(dataset, memory=SMALL_MEMORY).order(0)
    # A pool holds twelve samples; its blocks are neither in order nor kept together.
    blocks = order[:12] // 4
    assert len(set(blocks.tolist())) == 3
    assert np.count_nonzero(np.diff(blocks)) > 2


def test_only_whole_blocks_are_read_and_each_once(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[tuple[int, int]] = []
    lock = threading.Lock()

    class Watched:
        def __init__(self, array: object) -> None:
            self.array = array

        def __getattr__(self, name: str) -> object:
            return getattr(self.array, name)

        def __getitem__(self, index: slice) -> object:
            with lock:
                reads.append((index.start, index.stop))
            return self.array[index]  # type: ignore[index]

    arrays = Part.arrays
    monkeypatch.setattr(
        Part, "arrays", lambda part: {name: Watched(a) for name, a in arrays(part).items()}
    )
    list(batches(dataset, memory=SMALL_MEMORY).epoch(0))
    expected = [(start, min(start + 4, N_TRAIN)) for start in range(0, N_TRAIN, 4)]
    assert sorted(reads) == sorted(expected * 2)


def test_a_part_that_begins_within_a_block_gives_its_own_samples(dataset: Dataset) -> None:
    source = batches(dataset, memory=4 * SAMPLE_BYTES, split="test")
    assert not source.in_memory
    assert sorted(chain(*samples_of(list(source.epoch(0))))) == list(range(62, 71))


def test_an_epoch_may_be_left_early(dataset: Dataset) -> None:
    before = threading.active_count()
    epoch = batches(dataset, memory=SMALL_MEMORY).epoch(0)
    next(epoch)
    epoch.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_an_empty_part_has_no_batches(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "small.zarr"))
    write_whole(location, small_schema(split_sizes={"train": 10, "validation": 0, "test": 7}))
    source = Batches(
        open_dataset(location).part("validation", ["before"]), batch_size=4, seed=0, memory=0
    )
    assert (len(source), list(source.epoch(0)), source.order(0).tolist()) == (0, [], [])


def test_a_failed_read_reaches_the_caller(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = batches(dataset, memory=SMALL_MEMORY)

    class Broken:
        def __getitem__(self, index: object) -> object:
            raise OSError("the disk is gone")

        shape, dtype = (N_TRAIN, N_POINTS), np.dtype("float32")

    monkeypatch.setattr(source, "_arrays", {"before": Broken()})
    with pytest.raises(StoreUnavailable, match=r"cannot read .* the disk is gone"):
        list(source.epoch(0))


def test_a_batch_of_nothing_is_refused(dataset: Dataset) -> None:
    with pytest.raises(ValueError, match="batch_size and n_readers must be at least 1"):
        batches(dataset, memory=1, batch_size=0)
