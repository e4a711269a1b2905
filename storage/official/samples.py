"""Samples of a benchmark out of its official files, whatever order the files store them in.

Files that are stored sample by sample are read where they lie. Others would have to be read whole
for every few samples: they are turned once, piece by piece, into a scratch file that is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from storage.datasets.schema import SPLITS
from storage.location import require_space, whole_or_nothing
from storage.official.catalogue import PublishedArray, PublishedBenchmark, Split
from storage.official.download import Report
from storage.official.files import Array, FileArray, as_dask, open_array, require_finite


@dataclass(frozen=True, kw_only=True)
class PublishedSamples:
    """The samples that a split uses, counted through its parts, as float32 variables.

    `paths` are the files on this machine by their published path.
    """

    benchmark: PublishedBenchmark
    paths: Mapping[str, Path]
    split: Split
    stride: int
    scratch: Path

    def turn_arrays(self, report: Report, n_workers: int) -> None:
        """Write the scratch file of every array that needs one; those there already are kept."""
        for array in self._arrays():
            for number, path in enumerate(array.files):
                used, target = self._used_samples(number), self._turned_path(array, number)
                if target.exists() or not used:
                    continue
                source = self._open(array, path)
                if array.axes[0] == "sample" and not source.by_columns:
                    continue
                name = f"{path} {array.variable or ''}".strip()
                report(name, 0, 1, "turning")
                _store(self._turned(source, array, used), target, n_workers)
                report(name, 1, 1, "turned")

    def read(self, samples: range) -> dict[str, Array]:
        """Return the variables of some samples, the sample axis first."""
        arrays = {array: self._read_array(array, samples) for array in self._arrays()}
        values: dict[str, Array] = {}
        for variable in self.benchmark.variables:
            cut = arrays[variable.array].isel(variable.place())
            found = cut.transpose(*variable.axes()).values
            values[variable.name] = (
                found if variable.mask is None else found * values[variable.mask]
            )
        return values

    def _arrays(self) -> list[PublishedArray]:
        """Return the arrays that variables are cut from, each once."""
        return list(dict.fromkeys(variable.array for variable in self.benchmark.variables))

    def _open(self, array: PublishedArray, path: str) -> FileArray:
        return open_array(self.paths[path], array.variable, self.benchmark.shape(array, path))

    def _index(self, array: PublishedArray, samples: range) -> tuple[slice, ...]:
        """Return where in an array these samples are, on the points of the stride."""
        steps = {axis: self.benchmark.step(axis, self.stride) for axis in array.axes}
        index = {axis: slice(None, None, step) for axis, step in steps.items()}
        return tuple({**index, "sample": slice(samples.start, samples.stop)}.values())

    def _turned(self, source: FileArray, array: PublishedArray, used: range) -> Any:
        """Return the used samples of an array as a lazy one, its axes in the scratch order."""
        lazy = xr.DataArray(as_dask(source)[self._index(array, used)], dims=array.axes)
        turned = lazy.transpose(*_scratch_axes(array)).data
        return turned.map_blocks(_to_float32, dtype=np.float32)

    def _turned_path(self, array: PublishedArray, number: int) -> Path:
        name = f"{array.files[number]}-{array.variable or 'array'}".replace("/", "-")
        return self.scratch / f"{name}.npy"

    def _read_array(self, array: PublishedArray, samples: range) -> xr.DataArray:
        """Return samples of an array, the sample axis first, the others as in the file."""
        pieces, dims = [], _samples_first(array)
        for number, run in self._runs(samples):
            path, turned = array.files[number], self._turned_path(array, number)
            if turned.exists():
                first = self._used_samples(number).start
                stored = np.load(turned, mmap_mode="r", allow_pickle=False)
                values = np.array(stored[run.start - first : run.stop - first])
                piece = xr.DataArray(values, dims=_scratch_axes(array))
            else:
                # Also right, if slow, for an array that was turned on another machine.
                values = _to_float32(self._open(array, path)[self._index(array, run)])
                piece = xr.DataArray(values, dims=array.axes)
            pieces.append(piece.transpose(*dims).values)
            require_finite(pieces[-1], self.paths[path], array.variable, run.start)
        return xr.DataArray(np.concatenate(pieces), dims=dims)

    def _used_samples(self, number: int) -> range:
        """Return the smallest run of samples of one file that holds all that any part uses."""
        runs = [
            run
            for file, run in self._runs(range(sum(map(len, self.split.values()))))
            if file == number
        ]
        if not runs:
            return range(0)
        return range(min(run.start for run in runs), max(run.stop for run in runs))

    def _runs(self, samples: range) -> Iterator[tuple[int, range]]:
        """Yield the number of a file and a run of its samples, in the order of the parts."""
        offsets = list(accumulate(self.benchmark.n_samples, initial=0))
        before = 0
        for part in SPLITS:
            published = self.split[part]
            shift = published.start - before
            before += len(published)
            start = max(samples.start + shift, published.start)
            stop = min(samples.stop + shift, published.stop)
            for number, (first, last) in enumerate(pairwise(offsets)):
                run = range(max(start, first) - first, min(stop, last) - first)
                if run:
                    yield number, run


def _samples_first(array: PublishedArray) -> list[str]:
    return ["sample", *(axis for axis in array.axes if axis != "sample")]


def _scratch_axes(array: PublishedArray) -> list[str]:
    """Return the axes of an array in its scratch file, the sample axis first.

    The others are in the order in which the file stores them: a piece of the file then becomes
    one run of bytes a sample, however large the array. MATLAB's first axis varies fastest.
    """
    first, *others = _samples_first(array)
    return [first, *(others if array.variable is None else others[::-1])]


def _to_float32(values: Array) -> Array:
    # A value too large for float32 becomes infinite, which is found as such later.
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _store(lazy: Any, target: Path, n_workers: int) -> None:
    """Write a lazy array to an .npy file, whole or not at all."""
    import dask.array as da

    require_space(target.parent, lazy.nbytes, f"turning {target.name}")
    with whole_or_nothing(target) as partial:
        mapped: Any = _MappedFile(partial)
        np.lib.format.open_memmap(partial, mode="w+", dtype=np.float32, shape=lazy.shape)
        da.store(lazy, mapped, lock=False, scheduler="threads", num_workers=n_workers)


@dataclass(frozen=True)
class _MappedFile:
    """An .npy file that is mapped for each write: its pages do not stay in resident memory."""

    path: Path

    def __setitem__(self, index: Any, values: Array) -> None:
        np.lib.format.open_memmap(self.path, mode="r+")[index] = values
