"""The official files of a benchmark: planned, downloaded, converted.

plan = official_plan(plan, mirrors)                 what to take of them; nothing is fetched
place = fetch_and_convert(name, root, mirrors, plan.stride, report, n_workers)
plan = identified(plan, place)                      names the files by their hash
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from flows.errors import BadInput
from flows.steps.data.compute import map_unordered, run_on_every_worker
from lsm_core.experiments.plans import DataPlan, OfficialPlan
from storage.datasets.reader import open_dataset
from storage.errors import DatasetIncomplete, NotADataset, PublishedFileInvalid
from storage.location import Location
from storage.official.catalogue import PublishedBenchmark, published_benchmarks
from storage.official.conversion import Conversion, convert_published, plan_conversion
from storage.official.download import Report, download_published
from storage.official.export import exported_benchmark


def fetch_and_convert(
    name: str,
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
    return convert_published(
        benchmark,
        root,
        stride=stride,
        report=report,
        n_workers=n_workers,
        elsewhere=partial(_convert_on_cluster, dask_address) if dask_address else None,
    )


def official_plan(plan: DataPlan, mirrors: Sequence[str]) -> OfficialPlan:
    """Return what a plan takes of the official files in place of its seeds.

    The files are looked up, not fetched. They must have the plan's grid at some stride, and as many
    samples to train and to test on; BadInput otherwise. Of validation samples, which the official
    protocol does not have, those are taken that the files leave unused.
    """
    offered = _offered(plan.benchmark.name, mirrors)
    there = {part: len(samples) for part, samples in offered.splits["release"].items()}
    if there["train"] < plan.n_train or there["test"] < plan.n_test:
        raise BadInput(
            f"{_named(offered)} have {there['train']} samples to train and {there['test']} to test "
            f"on, but {plan.n_train} and {plan.n_test} are asked for; choose a smaller preset"
        )
    return OfficialPlan(
        **{**vars(plan), "n_validation": min(plan.n_validation, there["validation"])},
        stride=_stride(offered, plan),
        is_exported=offered.kind == "exported",
    )


def identified(plan: OfficialPlan, place: Location) -> OfficialPlan:
    """Return a plan that names the dataset into which its files were converted."""
    recipe = str(open_dataset(place).attributes["recipe"])
    return replace(plan, recipe=recipe, dataset=place.name)


def converted_plan(plan: DataPlan, root: Location, mirrors: Sequence[str]) -> OfficialPlan:
    """Return a plan on official files that were converted before; BadInput if they were not."""
    official, name = official_plan(plan, mirrors), plan.benchmark.name
    with suppress(PublishedFileInvalid, NotADataset, DatasetIncomplete):
        conversion = plan_conversion(_offered(name, mirrors), root, stride=official.stride)
        return identified(official, conversion.location)
    raise BadInput(
        f"the official files of {name} are not in {root} with stride {official.stride}; `lsm "
        f"prepare {name} --official --stride {official.stride}` brings them there"
    )


def _convert_on_cluster(
    dask_address: str,
    convert_block: Callable[[Conversion, int], int],
    arguments: list[tuple[Conversion, int]],
) -> Iterator[int]:
    """Convert blocks on a cluster; what each machine brought there from afar is removed."""
    yield from map_unordered(convert_block, arguments, n_workers=1, dask_address=dask_address)
    conversion, _ = arguments[0]
    if conversion.root.local_path is None:
        run_on_every_worker(Conversion.remove_scratch, conversion, dask_address=dask_address)


def _stride(offered: PublishedBenchmark, plan: DataPlan) -> int:
    """Return the stride at which official files have the grid of a plan."""
    problem = plan.benchmark
    variables = (*problem.with_role("input"), *problem.with_role("target"))
    stride = offered.stride_to({variable.name: variable.shape for variable in variables})
    if stride is None:
        points = "x".join(str(offered.axes[axis]) for axis in problem.space)
        wanted = "x".join(str(size) for size in problem.shape.space)
        raise BadInput(
            f"{_named(offered)} have {points} points, of which no stride leaves {wanted}; "
            "choose a preset with another grid, or leave out --official"
        )
    return stride


def _named(offered: PublishedBenchmark) -> str:
    return f"the {'exported' if offered.kind == 'exported' else 'official'} files of {offered.name}"


def _offered(name: str, mirrors: Sequence[str]) -> PublishedBenchmark:
    offers = (exported_benchmark(mirror, name) for mirror in mirrors)
    offered = next(
        (offer for offer in offers if offer is not None), published_benchmarks().get(name)
    )
    if offered is None:
        raise BadInput(f"there are no official files of {name}; leave out --official")
    return offered
