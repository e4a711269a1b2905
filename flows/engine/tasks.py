"""Policy around the steps: retries and limits. The work itself is in `flows.steps`."""

from contextlib import ExitStack, suppress
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event

from flows.engine.progress import current_progress
from flows.settings import Settings
from lsm_core.names import BenchmarkName
from lsm_core.result import Result
from storage.errors import (
    DatasetMismatch,
    LeaseLost,
    NotADataset,
    StorageError,
    StoreInterrupted,
    StoreUnavailable,
)
from storage.location import Location
from storage.runs.leases import Lease, Leases

if TYPE_CHECKING:
    from flows.steps.training.workplace import Workplace
    from lsm_core.experiments.experiment import BoundExperiment
    from lsm_core.experiments.plans import DataPlan

DATASET_UPDATED = "lsm.dataset.updated"
"""The event that tells of new data; `retrain/scheduled` waits for it."""
PAUSES = [2.0, 5.0, 15.0, 60.0, 180.0]
"""Seconds before each new try of a task."""
ORDINARY_TRIES = 2
HOPELESS = (ValueError, TypeError, StoreUnavailable, DatasetMismatch, NotADataset, LeaseLost)
"""Errors that another try will not mend."""


def may_help(_task: Any, run: Any, state: Any) -> bool:
    """Return whether a failed task is worth another try.

    A network that broke down may take minutes to come back; what else goes wrong twice is not
    going to go right.
    """
    from lsm_core.training.loop import Diverged

    error = state.result(raise_on_failure=False)
    if isinstance(error, StoreInterrupted):
        return True
    return run.run_count <= ORDINARY_TRIES and not isinstance(error, (*HOPELESS, Diverged))


@task(
    name="generate-dataset",
    retries=len(PAUSES),
    retry_delay_seconds=PAUSES,
    retry_condition_fn=may_help,
    # The store itself knows which blocks it has; a cached answer would not notice a removed one.
    cache_policy=NO_CACHE,
)
def generate_dataset(plan: "DataPlan", settings: Settings, announce: bool = False) -> str:
    """Generate the blocks that a dataset lacks, on all cores or on a cluster; return its place.

    With `announce`, data that was not there before is told to whoever waits for an event. Data
    that a training makes for itself is not: retraining would start itself again and again.
    """
    from flows.steps.data.compute import map_unordered
    from flows.steps.data.datasets import Generation, plan_generation

    name, progress = f"prepare {plan.benchmark.name}", current_progress()
    job = plan_generation(plan, settings.root)
    total = job.schema.n_blocks
    # Two that make the same data get the same bytes, but one of them need not.
    with Leases(settings.root / "claims").hold(
        f"dataset-{job.schema.recipe}", lambda: progress.update(name, 0, total, "another makes it")
    ):
        missing = job.begin()
        done = total - len(missing)
        progress.update(name, done, total)
        for _ in map_unordered(
            Generation.generate_block,
            [(job, index) for index in missing],
            n_workers=settings.n_workers,
            dask_address=settings.dask_address,
        ):
            done += 1
            progress.update(name, done, total)
        job.finish()
    if announce and missing:
        announce_dataset(plan.benchmark.name, job.location.url)
    return job.location.url


def announce_dataset(benchmark: str, url: str) -> None:
    """Emit the event that a benchmark has new data."""
    emit_event(
        DATASET_UPDATED,
        resource={
            "prefect.resource.id": f"lsm.dataset.{benchmark}",
            "prefect.resource.name": url.rsplit("/", 1)[-1],
            "lsm.benchmark": benchmark,
        },
        payload={"place": url},
    )


@task(
    name="convert-official",
    retries=len(PAUSES),
    retry_delay_seconds=PAUSES,
    retry_condition_fn=may_help,
    cache_policy=NO_CACHE,
)
def convert_official(
    name: BenchmarkName,
    settings: Settings,
    mirrors: list[str],
    stride: int | None,
    announce: bool = False,
) -> str:
    """Download the official files of a benchmark, convert them, and return the dataset's place.

    With `announce`, data that was not there before is told to whoever waits for an event.
    """
    from flows.steps.data.official import fetch_and_convert

    report = current_progress().update
    every = [*mirrors, *settings.mirrors]
    before = _complete_datasets(settings.root / "datasets" / name) if announce else set()
    # Two at once would remove the scratch files of each other.
    with Leases(settings.root / "claims").hold(
        f"official-{name}", lambda: report(f"prepare {name}", 0, 1, "another makes it")
    ):
        place = fetch_and_convert(
            name, settings.root, every, stride, report, settings.n_workers, settings.dask_address
        )
    if announce and place.name not in before:
        announce_dataset(name, place.url)
    return place.url


def _complete_datasets(folder: Location) -> set[str]:
    """Return the names of the complete datasets in a folder."""
    from storage.datasets.reader import open_dataset

    complete = set()
    for name in folder.names():
        with suppress(StorageError):
            open_dataset(folder / name)
            complete.add(name)
    return complete


@task(
    name="train",
    tags=["training"],  # `prefect concurrency-limit create training N` bounds it over all workers
    retries=len(PAUSES),
    retry_delay_seconds=PAUSES,
    retry_condition_fn=may_help,
    cache_policy=NO_CACHE,  # what counts is the result in the store
    task_run_name="{name}",
)
def train_cell(
    name: str,
    cell: "BoundExperiment",
    place: "Workplace",
    n_ranks: int,
    stop: Event,
    wait: bool = False,
) -> Result | None:
    """Return the result of a cell, trained in processes of its own if the store has none.

    None if another process, here or elsewhere, has it in hand; with `wait`, that one is waited for.
    If the lease is lost, which happens to a machine that was asleep or cut off for a minute, the
    training ends: another one goes on with it from the last checkpoint.
    """
    from flows.steps.results import stored_result
    from flows.steps.training.isolation import run_isolated
    from flows.steps.training.run import train

    if result := stored_result(place.root, cell.identity):
        return result
    progress, title = current_progress(), f"train {name}"
    threads = f"{place.n_threads} thread{'' if place.n_threads == 1 else 's'}"
    progress.update(title, 0, cell.training.epochs, f"on {place.slot}, {threads}")
    tell_that_it_waits = partial(progress.update, title, 0, cell.training.epochs, "another has it")
    leases = Leases(place.root / "claims")
    with ExitStack() as held:
        lease: Lease | None
        if wait:
            lease = held.enter_context(leases.hold(cell.identity, tell_that_it_waits))
        elif lease := leases.acquire(cell.identity):
            held.callback(lease.release)
        else:
            return None
        if result := stored_result(place.root, cell.identity):
            return result
        kept = lease

        def report(message: dict[str, Any]) -> None:
            if kept.is_lost:
                raise LeaseLost(f"another machine has taken over to {title}; nothing is lost")
            if stop.is_set():
                raise LeaseLost(f"the run that asked to {title} has ended; nothing is lost")
            progress.update(title, message["done"], message["total"], message["note"])

        run_isolated(
            train,
            cell,
            place,
            report=report,
            n_ranks=n_ranks,
            environment=place.slot.environment,
        )
    result = stored_result(place.root, cell.identity)
    assert result is not None  # training ends with it
    return result
