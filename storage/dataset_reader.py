"""Read a complete dataset, lazily."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
import zarr

from storage.dataset_schema import SPLITS
from storage.dataset_writer import read_attributes
from storage.errors import DatasetIncomplete, NotADataset
from storage.location import Location

Arrays: TypeAlias = dict[str, np.ndarray[Any, np.dtype[Any]]]


@dataclass(frozen=True)
class Dataset:
    """A complete dataset; nothing but its metadata is read until samples are asked for."""

    location: Location
    attributes: Mapping[str, Any]

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
        return Part(self, tuple(names), before, sizes[split])

    def statistics(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of a variable at every point, over training."""
        return self._moments(f"{name}_mean", f"{name}_std")

    def channel_statistics(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of every channel, over training and all points."""
        return self._moments(f"{name}_channel_mean", f"{name}_channel_std")

    def to_xarray(self) -> xr.Dataset:
        """Return the whole dataset as lazy, labelled arrays."""
        store = self.location.zarr_store(read_only=True)
        return xr.open_zarr(store, consolidated=False, zarr_format=3)

    def _moments(self, mean: str, std: str) -> tuple[np.ndarray, np.ndarray]:
        arrays = self._arrays((mean, std))
        return np.asarray(arrays[mean][...]), np.asarray(arrays[std][...])

    def _arrays(self, names: Sequence[str]) -> "dict[str, zarr.Array[Any]]":
        store = self.location.zarr_store(read_only=True)
        group = zarr.open_group(store, mode="r", use_consolidated=False)
        arrays = {}
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
        return self.dataset._arrays(self.names)

    def __getitem__(self, index: int | slice) -> Arrays:
        if isinstance(index, slice):
            first, last, step = index.indices(self.size)
            window: Any = slice(self.start + first, self.start + last, step)
        else:
            if not -self.size <= index < self.size:
                raise IndexError(f"sample {index} of {self.size} in {self.dataset.location}")
            window = self.start + index % self.size
        return {name: np.asarray(array[window]) for name, array in self.arrays().items()}


def open_dataset(location: Location) -> Dataset:
    """Return a dataset that is complete; say what is wrong with it otherwise."""
    attributes = read_attributes(location)
    if attributes is None:
        raise NotADataset(f"there is no dataset at {location}; make it with `lsm prepare`")
    if not attributes.get("complete"):
        raise DatasetIncomplete(
            f"the writing of {location} has not ended; run `lsm prepare` again to finish it"
        )
    return Dataset(location, attributes)
