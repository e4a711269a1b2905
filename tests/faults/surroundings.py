"""A clock that jumps, and a network to the store that is cut or slow."""

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.steps.training.workplace import Workplace
from storage.location import close_clients
from tests.faults import work
from tests.faults.table import Outcome, Trial
from tests.flows.steps.data.test_datasets import files
from tests.storage.interrupted_network import interrupted_network
from tests.storage.s3_servers import BUCKET, client_environment, rclone_server

A_DAY = 86_400.0


@contextmanager
def clock_jumps(folder: Path) -> Iterator[Trial]:
    """Let the clock jump a day ahead or back while a model is trained, and kill it at times."""
    data = work.training_data(folder)
    work.whole_training(folder)

    def trial(moments: random.Random, own: Path) -> Outcome:
        place = work.new_place(data, own)
        jump, after = moments.choice((-A_DAY, A_DAY)), moments.randint(1, 60)
        child = work.Child(train_while_the_clock_jumps, place, jump, after)
        if moments.random() < 0.5:
            child.kill_after(moments.uniform(0, 2))
        else:
            child.join()
        return work.finish_and_count(place, folder)

    yield trial


def train_while_the_clock_jumps(place: Workplace, jump: float, after: int) -> None:
    """Train in a process whose clock is off by some seconds after so many readings."""
    now, now_ns, readings = time.time, time.time_ns, 0

    def shift() -> float:
        nonlocal readings
        readings += 1
        return jump if readings > after else 0.0

    time.time = lambda: now() + shift()
    time.time_ns = lambda: now_ns() + int(shift() * 1e9)
    work.train_saving_often(place)


@contextmanager
def network_cut(folder: Path) -> Iterator[Trial]:
    """Cut the network to an object store in the middle of a write, for a while."""
    yield from _on_a_network(folder, is_slow=False)


@contextmanager
def network_slow(folder: Path) -> Iterator[Trial]:
    """Let every message to an object store take long."""
    yield from _on_a_network(folder, is_slow=True)


def _on_a_network(folder: Path, is_slow: bool) -> Iterator[Trial]:
    whole = work.whole_dataset(folder)
    with rclone_server(folder / "buckets") as server, interrupted_network(server.port) as network:
        environment = {**client_environment(network.endpoint), "AWS_MAX_ATTEMPTS": "1"}

        def trial(moments: random.Random, own: Path) -> Outcome:
            url = f"s3://{BUCKET}/{own.name}"
            if is_slow:
                network.delay = moments.uniform(0.002, 0.02)
            else:
                network.cut_after = moments.randint(1_000, 60_000)
                network.cuts_again = moments.random() < 0.7
            child = work.Child(generate_on, url, environment)
            said = ""
            try:
                child.join()
            except RuntimeError as error:
                said = str(error)
            network.cut_after, network.delay = None, 0.0
            # A network that comes back at once is not noticed; one that stays away is told.
            assert not said or said.startswith("StoreInterrupted: cannot"), said
            assert not (said and is_slow), said
            stored = folder / "buckets" / BUCKET / own.name
            accepted = work.accepted_blocks(work.generation_place(stored))
            work.Child(generate_on, url, environment).join()
            assert files(stored) == whole, "the bytes differ from those of a whole generation"
            return work.count_blocks(work.generation_place(stored), accepted)

        yield trial


def generate_on(url: str, environment: dict[str, str]) -> None:
    """Make the small dataset in an object store."""
    os.environ.update(environment)
    try:
        work.generate(url)
    finally:
        close_clients()
