"""The official files of a benchmark: downloaded, converted, and written from our own data."""

from collections.abc import Sequence
from pathlib import Path

from lsm_core.names import BenchmarkName
from storage.conversion import convert_published
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
) -> Location:
    """Bring the official files of a benchmark into the store, convert them, return the dataset.

    A mirror is a folder or URL that is asked before the published addresses; it may also hold
    files that were exported from generated data.
    """
    benchmark = _offered(name, mirrors)
    download_published(benchmark, root, mirrors, report)
    return convert_published(benchmark, root, stride=stride, report=report, n_workers=n_workers)


def export(dataset: Dataset, folder: Path) -> list[Path]:
    """Write a dataset as the official files of its benchmark."""
    return export_dataset(dataset, folder)


def _offered(name: BenchmarkName, mirrors: Sequence[str]) -> PublishedBenchmark:
    offers = (exported_benchmark(mirror, name) for mirror in mirrors)
    return next((offer for offer in offers if offer is not None), PUBLISHED[name])
