"""Read a complete dataset, lazily, or verify that it is still what was written."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
import zarr

from storage.datasets.schema import SPLITS, digest_of
from storage.datasets.writer import checksum_of, read_attributes
from storage.errors import DatasetCorrupt, DatasetIncomplete, NotADataset, translated
from storage.location import Location

Arrays: TypeAlias = dict[str, np.ndarray[Any, np.dtype[Any]]]


@dataclass(frozen=True)
class Dataset:
    """A complete dataset; nothing but its metadata is read until samples are asked for."""

    location: Location
    attributes: Mapping[str, Any]
    limits: Mapping[str, int] = field(default_factory=dict)
    """How many samples of a split are in use, where it is not all of them."""

    @property
    def digest(self) -> str:
        """Return the hash of the content."""
        return str(self.attributes["digest"])

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Return where the values come from."""
        return dict(self.attributes["provenance"])

    def part(self, split: str, names: Sequence[str]) -> "Part":
        """Return the samples of one split, restricted to some variables."""
        sizes = self.attributes["split_sizes"]
        before = sum(sizes[name] for name in SPLITS[: SPLITS.index(split)])
        size = min(sizes[split], self.limits.get(split, sizes[split]))
        return Part(self, tuple(names), before, size)

    def first(self, sizes: Mapping[str, int]) -> "Dataset":
        """Return the dataset with at most that many samples of each split, its first ones."""
        return replace(self, limits=sizes)

    def to_xarray(self) -> xr.Dataset:
        """Return the whole dataset as lazy, labelled arrays."""
        store = self.location.zarr_store(read_only=True)
        return xr.open_zarr(store, consolidated=False, zarr_format=3)

    def read(self, array: "zarr.Array[Any]", window: Any) -> np.ndarray:
        """Return some values of a stored array; DatasetCorrupt if they are not as written.

        A chunk that is gone reads as NaN, which only parameters of a sample may hold.
        """
        with self._decoding():
            values = np.asarray(array[window])
            may_be_nan = values.dtype.kind != "f" or array.attrs.get("role") == "parameter"
        if not may_be_nan and np.isnan(values).any():
            raise DatasetCorrupt(
                f"{self.location} lacks some values of {array.name.strip('/')}; remove it and "
                "prepare it again: the same bytes are made"
            )
        return values

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """Turn whatever damaged bytes lead zarr to into one sentence."""

        def corrupt(error: Exception) -> DatasetCorrupt | None:
            if isinstance(error, IndexError | MemoryError):
                return None
            return DatasetCorrupt(
                f"{self.location} cannot be read ({type(error).__name__}: {error}); remove it and "
                "prepare it again: the same bytes are made"
            )

        with translated(Exception, into=corrupt), self.location.reached():
            yield

    def arrays(self, names: Sequence[str]) -> "dict[str, zarr.Array[Any]]":
        """Return stored arrays, for whoever reads them many times."""
        arrays = {}
        with self._decoding():
            store = self.location.zarr_store(read_only=True)
            group = zarr.open_group(store, mode="r", use_consolidated=False)
            for name in names:
                array = group.get(name)
                if not isinstance(array, zarr.Array):
                    raise NotADataset(f"{self.location} has no variable {name}")
                arrays[name] = array
        return arrays


@dataclass(frozen=True)
class Part:
    """A run of consecutive samples: an index gives one sample, a slice several."""

    dataset: Dataset
    names: tuple[str, ...]
    start: int
    size: int

    def __len__(self) -> int:
        return self.size

    def arrays(self) -> dict[str, zarr.Array[Any]]:
        """Return the stored arrays of the whole dataset, for whoever reads many times."""
        return self.dataset.arrays(self.names)

    def __getitem__(self, index: int | slice) -> Arrays:
        if isinstance(index, slice):
            first, last, step = index.indices(self.size)
            window: Any = slice(self.start + first, self.start + last, step)
        else:
            if not -self.size <= index < self.size:
                raise IndexError(f"sample {index} of {self.size} in {self.dataset.location}")
            window = self.start + index % self.size
        return {name: self.dataset.read(array, window) for name, array in self.arrays().items()}


def open_dataset(location: Location) -> Dataset:
    """Return a dataset that is complete; say what is wrong with it otherwise."""
    attributes = read_attributes(location)
    if attributes is None:
        raise NotADataset(f"there is no dataset at {location}; make it with `lsm prepare`")
    if not attributes.get("complete"):
        raise DatasetIncomplete(
            f"the writing of {location} has not ended; run `lsm prepare` again to finish it"
        )
    problem = _problem(attributes)
    if problem:
        raise DatasetCorrupt(
            f"the attributes of {location} are damaged ({problem}); remove it and prepare it "
            "again: the same bytes are made"
        )
    return Dataset(location, attributes)


def verify_dataset(location: Location) -> Dataset:
    """Read a complete dataset block by block and return it; DatasetCorrupt if a value changed."""
    dataset = open_dataset(location)
    checksums = dataset.attributes["blocks"]
    if digest_of(checksums) != dataset.digest:
        raise DatasetCorrupt(f"the checksums of {location} are not those it was completed with")
    size = int(dataset.attributes["samples_per_block"])
    arrays = dataset.arrays(tuple(checksums[0]))
    for index, expected in enumerate(checksums):
        for name, array in arrays.items():
            block = slice(index * size, min((index + 1) * size, array.shape[0]))
            if checksum_of(dataset.read(array, block)) != expected[name]:
                raise DatasetCorrupt(
                    f"block {index} of {name} in {location} does not have its checksum; remove "
                    "the dataset and prepare it again: the same bytes are made"
                )
    return dataset


def _problem(attributes: Mapping[str, Any]) -> str:
    """Return what is wrong with the attributes that a reader relies on, or nothing."""
    sizes = attributes.get("split_sizes")
    if not isinstance(sizes, dict) or set(sizes) != set(SPLITS):
        return "split_sizes"
    if not all(type(size) is int and size >= 0 for size in sizes.values()):
        return "split_sizes"
    per_block = attributes.get("samples_per_block")
    if type(per_block) is not int or per_block < 1:
        return "samples_per_block"
    kinds = {"digest": str, "provenance": dict, "blocks": list}
    wrong = [name for name, kind in kinds.items() if not isinstance(attributes.get(name), kind)]
    return ", ".join(wrong)
