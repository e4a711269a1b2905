"""Write a dataset as files with the official names, variables, axes and dtypes.

    export_dataset(open_dataset(location), Path("exported"))
    benchmark = exported_benchmark("exported", "darcy")       to bring them into a store again

The parts stand where the released code looks for them. A manifest beside the files says how many
samples and points there are, since exported data seldom has the official size.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path

import numpy as np
import xarray as xr

from storage.datasets.reader import Dataset
from storage.datasets.schema import digest_of
from storage.errors import NotADataset
from storage.location import Location, whole_or_nothing
from storage.official.catalogue import (
    Coordinates,
    PublishedArray,
    PublishedBenchmark,
    PublishedVariable,
    Values,
    published_benchmarks,
)
from storage.official.files import Array
from storage.official.transfer import sha256_of

SAMPLES_AT_ONCE = 64
MAT5_BYTES = 2**31
"""No variable of a MATLAB 5 file is larger; MATLAB itself then writes version 7.3."""
HEADER = b"MATLAB 5.0 MAT-file, written by lsm".ljust(116)
HEADER73 = b"MATLAB 7.3 MAT-file, written by lsm".ljust(116)


def export_dataset(dataset: Dataset, folder: Path) -> list[Path]:
    """Write the official files of a dataset's benchmark into a folder and return their paths.

    MATLAB files have the version of the official ones, 5, or 7.3 if a variable is too large for
    it. Version 5 holds a file's variables in memory; everything else goes by blocks. Variables
    that the official files have beside those of the benchmark are not written.
    """
    published, name = published_benchmarks(), str(dataset.attributes["benchmark"])
    if name not in published:
        raise NotADataset(
            f"{dataset.location} is of the benchmark {name}, which has no official files; those "
            f"of {', '.join(published)} have"
        )
    benchmark = _sized_as(dataset, published[name])
    files = []
    for file in benchmark.files:
        path = folder / file.path
        with whole_or_nothing(path) as partial:
            _write_file(dataset, benchmark, file.path, partial)
        sha256, n_bytes = sha256_of(path), path.stat().st_size
        files.append(replace(file, sha256=sha256, n_bytes=n_bytes, urls=(), archive=None))
    _write_manifest(replace(benchmark, files=tuple(files)), folder)
    return [folder / file.path for file in files]


def exported_benchmark(mirror: str, name: str) -> PublishedBenchmark | None:
    """Return what a folder or URL holds of an export, or None if there is none.

    Download it with the same mirror, then convert it, like the official files.
    """
    try:
        content = json.loads((Location.parse(mirror) / _manifest_name(name)).read_bytes())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    official = published_benchmarks()[name]
    return replace(
        official,
        folder=f"exported/{digest_of(content)[:12]}/{official.folder}",
        files=tuple(
            replace(file, urls=(), archive=None, **content["files"][file.path])
            for file in official.files
        ),
        n_samples=content["n_samples"],
        axes=content["axes"],
        coordinates={
            axis: Coordinates(rule="given", values=values)
            for axis, values in content["coordinates"].items()
        },
        splits=dict.fromkeys(("release", "paper"), content["split"]),
        positions=content["positions"],
        stride=1,
        kind="exported",
        licence=content["licence"],
    )


def _manifest_name(benchmark: str) -> str:
    return f"lsm-export-{benchmark}.json"


def _write_manifest(benchmark: PublishedBenchmark, folder: Path) -> None:
    content = {
        "benchmark": benchmark.name,
        "n_samples": benchmark.n_samples,
        "axes": benchmark.axes,
        "coordinates": {
            axis: along(benchmark.axes[axis]).tolist()
            for axis, along in benchmark.coordinates.items()
        },
        "positions": benchmark.positions,
        "split": {part: [s.start, s.stop] for part, s in benchmark.splits["release"].items()},
        "files": {
            file.path: {"sha256": file.sha256, "n_bytes": file.n_bytes} for file in benchmark.files
        },
        "licence": benchmark.licence,
    }
    location = Location.parse(str(folder / _manifest_name(benchmark.name)))
    location.write_bytes(json.dumps(content, indent=1).encode())


def _sized_as(dataset: Dataset, official: PublishedBenchmark) -> PublishedBenchmark:
    """Return the official benchmark with the samples, points and coordinates of a dataset."""
    axes = dict(official.axes)
    coordinates: dict[str, dict[str, Values]] = {}
    whole = dataset.to_xarray()
    for variable in official.variables:
        for dim, size in zip(variable.dims, _shape(dataset, whole, variable), strict=True):
            axis, run = variable.along(dim)
            expected = len(range(official.axes[axis])[run])
            if axis == dim:
                axes[dim] = size
            elif size != expected:
                raise NotADataset(
                    f"{dataset.location} has {size} entries of {variable.name} along {dim}, "
                    f"the official files have {expected}"
                )
            if axis in official.coordinates:
                # Windows follow each other along the axis of the file.
                values = np.asarray(whole[dim].values, dtype=np.float64)
                coordinates.setdefault(axis, {})[dim] = values
    # Where each part stands is counted through all files.
    sizes = dataset.attributes["split_sizes"]
    parts = [part for parts in official.layout for part in parts]
    edges = accumulate((sizes[part] for part in parts), initial=0)
    split = {part: range(*edge) for part, edge in zip(parts, pairwise(edges), strict=True)}
    return replace(
        official,
        axes=axes,
        coordinates={
            axis: Coordinates(
                rule="given", values=tuple(np.concatenate(list(values.values())).tolist())
            )
            for axis, values in coordinates.items()
        },
        n_samples=tuple(sum(sizes[part] for part in parts) for parts in official.layout),
        splits={"release": split, "paper": split},
        positions=str(dataset.attributes["positions"]),
        licence=f"exported from {dataset.location.name}",
    )


def _shape(dataset: Dataset, whole: xr.Dataset, variable: PublishedVariable) -> tuple[int, ...]:
    dims = whole[variable.name].dims[1:] if variable.name in whole else None
    if dims != variable.dims:
        raise NotADataset(
            f"{dataset.location} has {variable.name} with axes {dims}, the official files need "
            f"{variable.dims}"
        )
    return whole[variable.name].shape[1:]


def _write_file(dataset: Dataset, benchmark: PublishedBenchmark, path: str, target: Path) -> None:
    blocks = {
        str(variable.array.variable): _Blocks(dataset, benchmark, variable.array, path)
        for variable in benchmark.variables
        if path in variable.array.files
    }
    if path.endswith(".npy"):
        (only,) = blocks.values()
        _write_npy(target, only)
        return
    shared = {
        name: benchmark.coordinates[axis](benchmark.axes[axis])[None, :]
        for name, axis in benchmark.shared.items()
    }
    if any(each.n_bytes >= MAT5_BYTES for each in blocks.values()):
        _write_mat73(target, blocks, shared)
    else:
        from scipy.io import savemat

        whole = {name: each.whole() for name, each in blocks.items()}
        savemat(str(target), whole | shared, appendmat=False)
        with target.open("r+b") as file:
            # In place of the date: the same data gives the same bytes.
            file.write(HEADER)


@dataclass(frozen=True)
class _Blocks:
    """An array of a file, put together from the variables that are cut out of it."""

    dataset: Dataset
    benchmark: PublishedBenchmark
    array: PublishedArray
    path: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.benchmark.shape(self.array, self.path)

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * np.dtype(self.array.dtype).itemsize

    def __iter__(self) -> Iterator[tuple[tuple[slice, ...], Array]]:
        """Yield where in the array a block goes, and the block."""
        variables = [v for v in self.benchmark.variables if v.array == self.array]
        names = [variable.name for variable in variables]
        first = 0
        for split in self.benchmark.layout[self.array.files.index(self.path)]:
            part = self.dataset.part(split, names)
            for start in range(0, len(part), SAMPLES_AT_ONCE):
                values = part[start : start + SAMPLES_AT_ONCE]
                n_samples = len(values[names[0]])
                index = tuple(
                    slice(first, first + n_samples) if axis == "sample" else slice(None)
                    for axis in self.array.axes
                )
                yield index, self._joined(variables, values, n_samples)
                first += n_samples

    def _joined(
        self, variables: list[PublishedVariable], values: Mapping[str, Array], n_samples: int
    ) -> Array:
        axes, sizes = self.array.axes, {**self.benchmark.axes, "sample": n_samples}
        empty = np.empty([sizes[axis] for axis in axes], self.array.dtype)
        joined = xr.DataArray(empty, dims=axes)
        for variable in variables:
            # Both name their axes: xarray puts them in the same order.
            own = xr.DataArray(values[variable.name], dims=variable.axes())
            joined[variable.place()] = own
        return empty

    def whole(self) -> Array:
        """Return the whole array, in MATLAB's order of memory."""
        values = np.empty(self.shape, self.array.dtype, order="F")
        for index, block in self:
            values[index] = block
        return values


def _write_npy(target: Path, blocks: _Blocks) -> None:
    np.lib.format.open_memmap(target, mode="w+", dtype=blocks.array.dtype, shape=blocks.shape)
    for index, block in blocks:
        np.lib.format.open_memmap(target, mode="r+")[index] = block


def _write_mat73(target: Path, arrays: Mapping[str, _Blocks], shared: Mapping[str, Values]) -> None:
    """Write a MATLAB 7.3 file: HDF5 with reversed axes, behind a block with MATLAB's header."""
    import h5py

    classes = {"float32": np.bytes_("single"), "float64": np.bytes_("double")}
    with h5py.File(target, "w", userblock_size=512) as file:
        for name, blocks in arrays.items():
            chunks = tuple(
                min(size, SAMPLES_AT_ONCE) if axis == "sample" else size
                for axis, size in zip(blocks.array.axes, blocks.shape, strict=True)
            )
            stored = file.create_dataset(
                name, shape=blocks.shape[::-1], dtype=blocks.array.dtype, chunks=chunks[::-1]
            )
            stored.attrs["MATLAB_class"] = classes[blocks.array.dtype]
            for index, block in blocks:
                stored[index[::-1]] = block.T
        for name, values in shared.items():
            stored = file.create_dataset(name, data=values.T)
            stored.attrs["MATLAB_class"] = classes["float64"]
    with target.open("r+b") as file:
        file.write(HEADER73 + bytes(8) + b"\x00\x02IM")
