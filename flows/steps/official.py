"""The official files of a benchmark: downloaded, converted, and written from our own data."""

from collections.abc import Sequence
from pathlib import Path

from flows.steps.compute import map_unordered, run_on_every_worker
from lsm_core.names import BenchmarkName
from storage.conversion import (
    Conversion,
    begin_conversion,
    convert_block_elsewhere,
    convert_published,
    finish_conversion,
    plan_conversion,
    remove_scratch,
    require_converted,
)
from storage.dataset_reader import Dataset
from storage.download import Report, download_published
from storage.export import export_dataset, exported_benchmark
from storage.location import Location
from storage.published_benchmark import PublishedBenchmark
from storage.published_catalogue import PUBLISHED


def fetch_and_convert(
    name: BenchmarkName,
    root: Location,
    mirrors: Sequence[str],
    stride: int | None,
    report: Report,
    n_workers: int,
    dask_address: str | None = None,
) -> Location:
    """Bring the official files of a benchmark into the store, convert them, return the dataset.

    A mirror is a folder or URL that is asked before the published addresses; it may also hold
    files that were exported from generated data. Blocks are converted by threads here, or by the
    workers of a Dask cluster.
    """
    benchmark = _offered(name, mirrors)
    download_published(benchmark, root, mirrors, report)
    if dask_address is None:
        return convert_published(benchmark, root, stride=stride, report=report, n_workers=n_workers)
    conversion = plan_conversion(benchmark, root, stride=stride)
    _convert_on_cluster(conversion, report, n_workers, dask_address)
    return conversion.location


def export(dataset: Dataset, folder: Path) -> list[Path]:
    """Write a dataset as the official files of its benchmark."""
    return export_dataset(dataset, folder)


def _convert_on_cluster(
    conversion: Conversion, report: Report, n_workers: int, dask_address: str
) -> None:
    """Convert the missing blocks on a cluster; verify them and mark the dataset complete here."""
    name, total = conversion.benchmark.title, conversion.schema.n_blocks
    missing = begin_conversion(conversion, report, n_workers, elsewhere=True)
    if missing:
        done = total - len(missing)
        report(name, done, total, "blocks")
        for _ in map_unordered(
            convert_block_elsewhere,
            [(conversion, index) for index in missing],
            n_workers=n_workers,
            dask_address=dask_address,
        ):
            done += 1
            report(name, done, total, "blocks")
        require_converted(conversion, missing)
    finish_conversion(conversion)
    if missing and conversion.root.local_path is None:
        run_on_every_worker(remove_scratch, conversion, dask_address=dask_address)


def _offered(name: BenchmarkName, mirrors: Sequence[str]) -> PublishedBenchmark:
    offers = (exported_benchmark(mirror, name) for mirror in mirrors)
    return next((offer for offer in offers if offer is not None), PUBLISHED[name])
