"""Turn official files into a dataset of the store, in bounded memory.

    conversion = plan_conversion(published_benchmarks()["darcy"], root)
    for index in begin_conversion(conversion):        template, and arrays that need turning
        convert_block(conversion, index)              any order, any process
    conversion.finish()                               verify, mark complete

`convert_published` does it all. Every step may be killed and called again, and ends with the same
bytes. Workers of a cluster call `convert_block_elsewhere`, which does not take for granted that
their machine sees the store or has the files.
"""

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import fsspec
from filelock import FileLock

from storage.datasets.schema import SPLITS, DatasetSchema, VariableSchema, environment
from storage.datasets.writer import DatasetJob, read_attributes
from storage.errors import PublishedFileInvalid, StoreUnavailable
from storage.location import Location, require_space, whole_or_nothing
from storage.official.catalogue import PublishedBenchmark, PublishedFile, SplitRule
from storage.official.download import FileRecord, Report, no_report, raw_location, read_record
from storage.official.samples import PublishedSamples
from storage.official.transfer import sha256_of

VERSION = 1
"""Part of the recipe: raise it when the values of a conversion change."""
BLOCK_BYTES = 2**25
MOST_SAMPLES_PER_BLOCK = 64


@dataclass(frozen=True, kw_only=True)
class Conversion(DatasetJob):
    """Official files on their way into one dataset."""

    benchmark: PublishedBenchmark
    root: Location
    stride: int
    split: Mapping[str, range]
    """Which samples of the files go into each part."""
    records: Mapping[str, FileRecord]

    @property
    def scratch(self) -> Path:
        """Return the folder for arrays that were turned, removed at the end.

        It lies in a store that is a folder, and else on the machine that asks.
        """
        recipe = self.schema.recipe[:12]
        if self.root.local_path is not None:
            return self.root.local_path / "scratch" / recipe
        return Path(tempfile.gettempdir()) / f"lsm-scratch-{recipe}"

    def finish(self) -> None:
        """Verify the blocks, mark the dataset complete and remove the scratch files."""
        super().finish()
        self.remove_scratch()

    def remove_scratch(self) -> None:
        """Remove what this machine keeps only while it converts."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def samples(self) -> PublishedSamples:
        """Return the samples to convert, out of files of this machine."""
        return PublishedSamples(
            benchmark=self.benchmark,
            paths={file.path: self._local_path(file) for file in self.benchmark.files},
            split=self.split,
            stride=self.stride,
            scratch=self.scratch,
        )

    def _local_path(self, file: PublishedFile) -> Path:
        """Return where a file lies on this machine; brought here if the store is elsewhere."""
        location = raw_location(self.benchmark, file, self.root)
        if location.local_path is not None:
            return location.local_path
        copy = self.scratch / file.path
        if not copy.exists():
            filesystem, remote = fsspec.core.url_to_fs(location.url)
            with whole_or_nothing(copy) as partial, location.reached():
                filesystem.get_file(remote, str(partial))
        return copy


RunElsewhere: TypeAlias = Callable[
    [Callable[[Conversion, int], int], list[tuple[Conversion, int]]], Iterator[int]
]
"""Calls a function with each of some arguments and yields what it returns, in any order."""


def convert_published(
    benchmark: PublishedBenchmark,
    root: Location,
    *,
    stride: int | None = None,
    split_rule: SplitRule = "release",
    report: Report = no_report,
    n_workers: int = 2,
    elsewhere: RunElsewhere | None = None,
) -> Location:
    """Convert the downloaded files of a benchmark and return the dataset's place.

    `stride` takes every n-th point along the axes of space; the protocol's own if None. A dataset
    that is complete already is left alone. Blocks are converted by threads of this process, or by
    what runs them `elsewhere`.
    """
    conversion = plan_conversion(benchmark, root, stride=stride, split_rule=split_rule)
    missing = begin_conversion(conversion, report, n_workers, elsewhere=elsewhere is not None)
    if missing:
        if elsewhere is None:
            converted = _convert_here(conversion, missing, n_workers)
        else:
            converted = elsewhere(convert_block_elsewhere, [(conversion, i) for i in missing])
        n_blocks = conversion.schema.n_blocks
        done = n_blocks - len(missing)
        report(benchmark.title, done, n_blocks, "blocks")
        for number, _ in enumerate(converted, start=done + 1):
            report(benchmark.title, number, n_blocks, "blocks")
        if elsewhere is not None:
            require_converted(conversion, missing)
    conversion.finish()
    return conversion.location


def plan_conversion(
    benchmark: PublishedBenchmark,
    root: Location,
    *,
    stride: int | None = None,
    split_rule: SplitRule = "release",
) -> Conversion:
    """Return a conversion of files that were downloaded."""
    stride = benchmark.stride if stride is None else stride
    benchmark.require_stride(stride)
    records = {}
    for file in benchmark.files:
        record = read_record(benchmark, file, root)
        if record is None:
            raise PublishedFileInvalid(
                f"{raw_location(benchmark, file, root)} was not downloaded; download the official "
                f"files of {benchmark.name} first"
            )
        records[file.path] = record
    split = {part: benchmark.splits[split_rule][part] for part in SPLITS}
    schema = _schema(benchmark, stride, split_rule, split, records)
    target = next(variable for variable in schema.variables if variable.role == "target")
    size = "x".join(str(size) for size in target.shape[: len(benchmark.space)])
    # Other files, strides and splits lie elsewhere.
    name = f"{benchmark.kind}-{size}-{split_rule}-{schema.recipe[:12]}.zarr"
    return Conversion(
        location=root / "datasets" / benchmark.name / name,
        schema=schema,
        benchmark=benchmark,
        root=root,
        stride=stride,
        split=split,
        records=records,
    )


def _schema(
    benchmark: PublishedBenchmark,
    stride: int,
    split_rule: SplitRule,
    split: Mapping[str, range],
    records: Mapping[str, FileRecord],
) -> DatasetSchema:
    """Return what the dataset will hold."""
    variables = tuple(
        VariableSchema(
            name=variable.name,
            dims=variable.dims,
            shape=benchmark.variable_shape(variable, stride),
            role=variable.role,
            unit=variable.unit,
            description=variable.description,
        )
        for variable in benchmark.variables
    )
    dims = dict.fromkeys(dim for variable in variables for dim in variable.dims)
    coordinates = {dim: benchmark.coordinates_of(dim, stride) for dim in dims}
    return DatasetSchema(
        variables=variables,
        coordinates={dim: along for dim, along in coordinates.items() if along is not None},
        split_sizes={part: len(samples) for part, samples in split.items()},
        samples_per_block=_samples_per_block(sum(each.sample_bytes for each in variables)),
        attributes={
            "benchmark": benchmark.name,
            "title": benchmark.title,
            "space": list(benchmark.space),
            "positions": benchmark.positions,
            "licence": benchmark.licence,
        },
        provenance={
            "kind": benchmark.kind,
            "benchmark": benchmark.name,
            "converter": VERSION,
            "stride": stride,
            "split_rule": split_rule,
            "split": {part: [each.start, each.stop] for part, each in split.items()},
            "files": {
                path: {"sha256": record.sha256, "n_bytes": record.n_bytes}
                for path, record in records.items()
            },
        },
        environment={
            **environment(),
            "urls": {path: record.url for path, record in records.items()},
        },
    )


def begin_conversion(
    conversion: Conversion,
    report: Report = no_report,
    n_workers: int = 2,
    *,
    elsewhere: bool = False,
) -> list[int]:
    """Write the template, turn what needs turning, and return the blocks to convert.

    If blocks are converted `elsewhere`, files of a store that is no folder are not brought here:
    each machine brings and turns its own.
    """
    location, schema = conversion.location, conversion.schema
    missing = conversion.begin()
    if missing:
        if location.local_path is not None:
            sample_bytes = sum(variable.sample_bytes for variable in schema.variables)
            n_samples = sum(len(schema.block(index)) for index in missing)
            require_space(location.local_path, n_samples * sample_bytes, conversion.benchmark.title)
        if not (elsewhere and conversion.root.local_path is None):
            _require_sources(conversion)
            conversion.samples().turn_arrays(report, n_workers)
    return missing


def convert_block(conversion: Conversion, index: int) -> int:
    """Read the samples of one block, write them, and return the block's number."""
    conversion.write_block(index, conversion.samples().read(conversion.schema.block(index)))
    return index


def convert_block_elsewhere(conversion: Conversion, index: int) -> int:
    """Convert one block on a machine that may be another than the one that began."""
    root, location = conversion.root, conversion.location
    if read_attributes(location) is None:
        raise StoreUnavailable(
            f"the worker on {socket.gethostname()} does not see {location}, which was begun on "
            "another machine; use a store that all workers reach, such as a bucket or a shared "
            "folder (LSM_STORE), or convert without LSM_DASK"
        )
    if root.local_path is None:
        _bring_here(conversion)
    return convert_block(conversion, index)


def require_converted(conversion: Conversion, blocks: list[int]) -> None:
    """Raise StoreUnavailable unless blocks that were converted elsewhere have come here."""
    lost = set(conversion.missing_blocks()) & set(blocks)
    if lost:
        raise StoreUnavailable(
            f"workers converted {len(blocks)} blocks of {conversion.location}, but {len(lost)} are "
            "not there: they have a folder of their own at this place; use a store that all "
            "workers reach (LSM_STORE), or convert without LSM_DASK"
        )


def _bring_here(conversion: Conversion) -> None:
    """Bring the files to this machine, check and turn them: once for all its processes."""
    ready = conversion.scratch / "ready"
    if ready.exists():
        return
    conversion.scratch.mkdir(parents=True, exist_ok=True)
    with FileLock(conversion.scratch / "lock"):
        if not ready.exists():
            _require_sources(conversion)
            conversion.samples().turn_arrays(no_report, n_workers=1)
            ready.touch()


def _convert_here(conversion: Conversion, missing: list[int], n_workers: int) -> Iterator[int]:
    """Convert blocks, some at once, in threads: numpy and zarr leave the interpreter to others."""
    with ThreadPoolExecutor(n_workers, thread_name_prefix="convert") as threads:
        yield from threads.map(partial(convert_block, conversion), missing)


def _samples_per_block(sample_bytes: int) -> int:
    fitting = max(1, min(MOST_SAMPLES_PER_BLOCK, BLOCK_BYTES // sample_bytes))
    return 1 << (fitting.bit_length() - 1)


def _require_sources(conversion: Conversion) -> None:
    """Raise PublishedFileInvalid unless all files are those that were locked."""
    try:
        paths = conversion.samples().paths
        found = {path: sha256_of(local) for path, local in paths.items()}
    except FileNotFoundError as error:
        raise PublishedFileInvalid(
            f"{error.filename} of {conversion.benchmark.name} is no longer in the store; "
            "download it again"
        ) from error
    for path, record in conversion.records.items():
        if found[path] != record.sha256:
            if conversion.root.local_path is None:
                paths[path].unlink(missing_ok=True)  # a copy; the next try brings another
            raise PublishedFileInvalid(
                f"{paths[path]} has sha256 {found[path]}, expected {record.sha256} as downloaded; "
                "remove it and download it again"
            )
