"""Stores that fail: a full disk, a read-only one, bytes that turned, files cut short, and two
processes that write the same.
"""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows.steps.data.datasets import plan_generation
from storage.datasets.reader import open_dataset
from storage.errors import DatasetCorrupt
from storage.location import Location
from tests.faults import work
from tests.faults.table import Outcome, Trial
from tests.flows.steps.data.test_datasets import PLAN, files

PAGE = 4096
Values = dict[str, bytes]


@dataclass(frozen=True)
class SmallDisk:
    """A file system of its own in memory, whose size and permission can be changed."""

    folder: Path

    def resize(self, n_bytes: int) -> None:
        self._remount(f"size={n_bytes}")

    def allow_writing(self) -> None:
        self._remount("rw")

    def forbid_writing(self) -> None:
        """Make it read-only, between two writes: while a file is open, Linux refuses."""
        deadline = time.monotonic() + 20
        while not self._remount("ro", check=False):
            assert time.monotonic() < deadline, "the disk is busy all the time"
            time.sleep(0.003)

    def _remount(self, option: str, check: bool = True) -> bool:
        command = ["mount", "--options", f"remount,{option}", self.folder]
        done = subprocess.run(command, check=check, capture_output=True)
        return done.returncode == 0


def can_mount() -> bool:
    """Return whether this process may mount a file system."""
    return os.geteuid() == 0 and Path("/proc/mounts").exists()


@contextmanager
def small_disk(folder: Path, n_bytes: int) -> Iterator[SmallDisk]:
    """Provide a file system of a size; needs the rights of root."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", folder]
    subprocess.run(command, check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def disk_full(folder: Path) -> Iterator[Trial]:
    """Let the disk be full while a dataset is made, or while a model is trained."""
    whole = work.whole_dataset(folder)
    data = work.training_data(folder)
    work.whole_training(folder)
    checkpoint = len(_a_checkpoint(folder))

    def generate(moments: random.Random, own: Path) -> Outcome:
        needed = sum(-(-len(content) // PAGE) * PAGE for content in whole.values())
        with small_disk(own / "disk", int(needed * moments.uniform(0.2, 0.9))) as disk:
            _expect(work.Child(work.generate, str(disk.folder)), "No space left on device")
            accepted = work.accepted_blocks(work.generation_place(disk.folder))
            disk.resize(10 * needed)
            work.generate(str(disk.folder))
            assert files(disk.folder) == whole, "the bytes differ from a whole generation's"
            return work.count_blocks(work.generation_place(disk.folder), accepted)

    def train(moments: random.Random, own: Path) -> Outcome:
        place = work.new_place(data, own)
        # Room for some of the three checkpoints that lie there at a time.
        with small_disk(own / "disk", int(checkpoint * moments.uniform(0.5, 2.5))) as disk:
            full = work.new_place(data, disk.folder, place.tracking_uri)
            _expect(work.Child(work.train_saving_often, full), "No space left on device")
            disk.resize(20 * checkpoint)
            return work.finish_and_count(full, folder)

    def trial(moments: random.Random, own: Path) -> Outcome:
        return moments.choice((generate, train))(moments, own)

    yield trial


@contextmanager
def read_only(folder: Path) -> Iterator[Trial]:
    """Let the store become read-only while a dataset is made."""
    whole = work.whole_dataset(folder)

    def trial(moments: random.Random, own: Path) -> Outcome | None:
        with small_disk(own / "disk", 2**26) as disk:
            child = work.Child(work.generate, str(disk.folder))
            time.sleep(moments.uniform(0, 0.5))
            disk.forbid_writing()
            child.process.join()
            if child.process.exitcode == 0:
                return None
            _expect(child, "Read-only file system")
            accepted = work.accepted_blocks(work.generation_place(disk.folder))
            disk.allow_writing()
            work.generate(str(disk.folder))
            assert files(disk.folder) == whole, "the bytes differ from a whole generation's"
            return work.count_blocks(work.generation_place(disk.folder), accepted)

    yield trial


def _expect(child: work.Child, said: str) -> None:
    """Wait for work that cannot succeed, and require that it says so in a sentence."""
    with pytest.raises(RuntimeError, match=f"^StoreUnavailable: cannot .*{said}"):
        child.join()


def _a_checkpoint(folder: Path) -> bytes:
    place = work.new_place(work.training_data(folder), folder / "whole-training", "sqlite://")
    content = place.checkpoints(work.longer().identity).latest()
    assert content is not None
    return content


@contextmanager
def corrupt_chunk(folder: Path) -> Iterator[Trial]:
    """Turn a bit of a chunk, while a dataset is made or after it is complete."""
    whole = work.whole_dataset(folder)
    expected = _values(work.generation_place(folder / "whole"))

    def trial(moments: random.Random, own: Path) -> Outcome:
        root, dataset = Location.parse(str(own)), work.generation_place(own)
        is_complete = moments.random() < 0.5
        if is_complete:
            work.generate(str(own))
        else:
            job = plan_generation(PLAN, root)
            for index in job.begin():
                job.generate_block(index)
        local = dataset.local_path
        assert local is not None
        names = [variable.name for variable in PLAN.benchmark.variables]
        chunk = moments.choice(
            [path for name in names for path in (local / name / "c").rglob("*") if path.is_file()]
        )
        _turn_a_bit(chunk, moments)
        outcome = _notice(dataset, is_complete, expected)
        if is_complete:
            dataset.remove()
        work.generate(str(own))
        assert files(own) == whole, "the bytes differ from those of a whole generation"
        return outcome

    yield trial


def _turn_a_bit(path: Path, moments: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[moments.randrange(len(content))] ^= 1 << moments.randrange(8)
    path.write_bytes(content)


def _notice(dataset: Location, is_complete: bool, expected: Values) -> Outcome:
    """Return one lost result if damaged values are taken for good ones."""
    try:
        if not is_complete:
            plan_generation(PLAN, Location(dataset.url.rsplit("/datasets/", 1)[0])).finish()
        return Outcome(lost=int(_values(dataset) != expected))
    except DatasetCorrupt:
        return Outcome()


def _values(dataset: Location) -> Values:
    """Return the values of every variable, read as a training reads them."""
    names = [variable.name for variable in PLAN.benchmark.variables]
    return {
        f"{part} {name}": values.tobytes()
        for part in ("train", "validation", "test")
        for name, values in open_dataset(dataset).part(part, names)[:].items()
    }


@contextmanager
def truncated_checkpoint(folder: Path) -> Iterator[Trial]:
    """Cut the newest checkpoint of a killed training short."""
    data = work.training_data(folder)
    work.whole_training(folder)

    def trial(moments: random.Random, own: Path) -> Outcome | None:
        place = work.new_place(data, own)
        child = work.Child(work.train_saving_often, place)
        while len(work.checkpoints_of(place)) < 2 and child.process.is_alive():
            time.sleep(0.01)
        if not child.kill_after(moments.uniform(0, 0.5)):
            return None
        newest = place.checkpoints(work.longer().identity).location / (
            work.checkpoints_of(place)[-1] + ".checkpoint"
        )
        assert newest.local_path is not None
        os.truncate(newest.local_path, moments.randrange(newest.local_path.stat().st_size))
        return work.finish_and_count(place, folder)

    yield trial


@contextmanager
def two_processes(folder: Path) -> Iterator[Trial]:
    """Let two processes make the same dataset, or train the same cell, at the same time."""
    whole = work.whole_dataset(folder)
    data = work.training_data(folder)
    work.whole_training(folder)

    def generate(moments: random.Random, own: Path) -> Outcome:
        pair = [work.Child(work.generate, str(own))]
        time.sleep(moments.uniform(0, 0.3))
        pair.append(work.Child(work.generate, str(own)))
        for child in pair:
            child.join()
        assert files(own) == whole, "the bytes differ from those of one process"
        return work.count_blocks(work.generation_place(own), {})

    def train(moments: random.Random, own: Path) -> Outcome:
        place = work.new_place(data, own)
        pair = [work.Child(work.train_saving_often, place)]
        time.sleep(moments.uniform(0, 1))
        pair.append(work.Child(work.train_saving_often, place))
        for child in pair:
            child.join()
        return work.finish_and_count(place, folder)

    def trial(moments: random.Random, own: Path) -> Outcome:
        return moments.choice((generate, train))(moments, own)

    yield trial
