"""Processes that are killed: training, generation, conversion, and a worker of a Dask cluster."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.engine.own_server import free_port
from flows.steps.data.compute import map_unordered
from flows.steps.data.datasets import Generation, plan_generation
from storage.datasets.reader import open_dataset
from storage.errors import StorageError
from storage.location import Location
from storage.official.conversion import plan_conversion
from storage.official.download import download_published
from tests.faults import work
from tests.faults.table import Outcome, Trial
from tests.flows.steps.data.test_datasets import PLAN, files
from tests.storage.official.small_files import (
    convert_in_small_blocks,
    raw_arrays,
    small_benchmark,
    write_official,
)


@contextmanager
def training_killed(folder: Path) -> Iterator[Trial]:
    """Kill a training between its start and its end."""
    data = work.training_data(folder)
    work.whole_training(folder)
    seconds = _seconds(work.train_saving_often, work.new_place(data, _new(folder)))

    def trial(moments: random.Random, own: Path) -> Outcome | None:
        place = work.new_place(data, own)
        child = work.Child(work.train_saving_often, place)
        if not child.kill_after(moments.uniform(0, seconds)):
            return None
        accepted = work.checkpoints_of(place)
        outcome = work.finish_and_count(place, folder)
        # What was saved is used: the run is never taken further back than its last checkpoint.
        assert not accepted or work.checkpoints_of(place)[-1] >= accepted[-1]
        return outcome

    yield trial


@contextmanager
def generation_killed(folder: Path) -> Iterator[Trial]:
    """Kill the making of a dataset."""
    whole = work.whole_dataset(folder)
    seconds = _seconds(work.generate, str(_new(folder)))

    def trial(moments: random.Random, own: Path) -> Outcome | None:
        child = work.Child(work.generate, str(own))
        if not child.kill_after(moments.uniform(0, seconds)):
            return None
        dataset = work.generation_place(own)
        accepted = work.accepted_blocks(dataset)
        assert _is_hidden_until_complete(dataset)
        work.generate(str(own))
        assert files(own) == whole, "the bytes differ from those of a whole generation"
        return work.count_blocks(dataset, accepted)

    yield trial


@contextmanager
def conversion_killed(folder: Path) -> Iterator[Trial]:
    """Kill the conversion of official files."""
    write_official(raw_arrays("burgers"), folder / "mirror", "7")
    benchmark = small_benchmark("burgers")

    def brought(own: Path) -> Location:
        root = Location.parse(str(own))
        download_published(benchmark, root, [str(folder / "mirror")])
        return root

    whole = _new(folder)
    brought(whole)
    convert_in_small_blocks("burgers", str(whole))
    expected = files(whole / "datasets")
    timed = _new(folder)
    brought(timed)
    seconds = _seconds(convert_in_small_blocks, "burgers", str(timed))

    def trial(moments: random.Random, own: Path) -> Outcome | None:
        root = brought(own)
        child = work.Child(convert_in_small_blocks, "burgers", str(own))
        if not child.kill_after(moments.uniform(0, seconds)):
            return None
        dataset = plan_conversion(benchmark, root).location
        accepted = work.accepted_blocks(dataset)
        assert _is_hidden_until_complete(dataset)
        convert_in_small_blocks("burgers", str(own))
        assert files(own / "datasets") == expected, "the bytes differ from a whole conversion's"
        return work.count_blocks(dataset, accepted)

    yield trial


@contextmanager
def dask_worker_killed(folder: Path) -> Iterator[Trial]:
    """Kill one of two workers of a Dask cluster while they generate."""
    whole = work.whole_dataset(folder)
    with dask_cluster() as cluster:

        def trial(moments: random.Random, own: Path) -> Outcome | None:
            return generate_and_kill_a_worker(cluster, moments, own, whole)

        yield trial


def generate_and_kill_a_worker(
    cluster: "DaskCluster", moments: random.Random, own: Path, whole: dict[str, bytes]
) -> Outcome | None:
    """Generate on a cluster, kill a worker meanwhile, and compare with what it should be."""
    root = Location.parse(str(own))
    victim = cluster.start_worker()
    cluster.wait_for(2)
    is_done = threading.Event()
    accepted: dict[int, bytes] = {}

    def kill() -> None:
        time.sleep(moments.uniform(0, 1.5))
        if not is_done.is_set():
            accepted.update(work.accepted_blocks(work.generation_place(own)))
            victim.kill()

    killer = threading.Thread(target=kill)
    job = plan_generation(PLAN, root)
    missing = job.begin()
    killer.start()
    done = list(
        map_unordered(
            Generation.generate_block,
            [(job, index) for index in missing],
            n_workers=2,
            dask_address=cluster.address,
        )
    )
    is_done.set()
    killer.join()
    was_killed = victim.poll() is not None
    victim.kill()
    victim.wait()
    cluster.wait_for(1)
    job.finish()
    assert sorted(done) == missing
    assert files(own) == whole, "the bytes differ from those of a whole generation"
    outcome = work.count_blocks(work.generation_place(own), accepted)
    return outcome if was_killed else None


class DaskCluster:
    """A scheduler and workers as processes of this machine."""

    def __init__(self) -> None:
        self.port = free_port()
        self.started: list[subprocess.Popen[bytes]] = []
        self._start("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker without a nanny, which would bring it back."""
        options = ("--no-nanny", "--no-dashboard", "--nthreads", "1", "--host", "127.0.0.1")
        return self._start("worker", self.address, *options)

    def wait_for(self, n_workers: int) -> None:
        """Return when the scheduler knows exactly so many workers."""
        from distributed import Client

        with Client(self.address, timeout=60) as client:
            deadline = time.monotonic() + 60
            while len(client.scheduler_info()["workers"]) != n_workers:
                assert time.monotonic() < deadline, "the workers did not come"
                time.sleep(0.05)

    def stop(self) -> None:
        for process in reversed(self.started):
            process.kill()
            process.wait()

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:]],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])},
        )
        self.started.append(process)
        return process


@contextmanager
def dask_cluster() -> Iterator[DaskCluster]:
    """Provide a cluster with one worker while the block runs."""
    cluster = DaskCluster()
    try:
        cluster.start_worker()
        cluster.wait_for(1)
        yield cluster
    finally:
        cluster.stop()


def _is_hidden_until_complete(dataset: Location) -> bool:
    """Return whether a dataset that was cut off is refused, and one that opens is complete."""
    try:
        return bool(open_dataset(dataset).attributes["complete"])
    except StorageError:
        return True


def _seconds(function: Any, *arguments: Any) -> float:
    """Return how long some work takes in a child that nothing happens to."""
    work.Child(time.sleep, 0.0).join()  # the first child waits for the fork server's imports
    child = work.Child(function, *arguments)
    began = time.monotonic()
    child.join()
    return time.monotonic() - began


def _new(folder: Path) -> Path:
    made = folder / f"own-{time.time_ns()}"
    made.mkdir()
    return made
