"""Small work to be interrupted: a dataset, a conversion, a training, each of a second or so.

Children come from a fork server that has imported everything, so that a trial costs what the work
costs, and a kill falls into the work instead of into imports.
"""

import json
import multiprocessing
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from flows.steps.data import datasets
from flows.steps.training import run as training
from flows.steps.training.run import train
from flows.steps.training.workplace import Workplace, selected_weights
from lsm_core.experiments.experiment import BoundExperiment
from storage.datasets.reader import open_dataset
from storage.datasets.writer import read_attributes
from storage.location import Location
from storage.tracking.registry import registered_name
from storage.tracking.store import open_tracking
from tests.faults.table import Outcome
from tests.flows.steps.data.generation import generated
from tests.flows.steps.data.test_datasets import PLAN, files, make
from tests.flows.steps.training.test_run import comparable, experiment

EPOCHS = 8
processes = multiprocessing.get_context("forkserver")


def prepare_children() -> None:
    """Let children start with everything imported."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    processes.set_forkserver_preload(["tests.faults.work", "tests.storage.official.small_files"])


class Child:
    """A process that does one piece of work and is killed in the middle."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._receiver, sender = processes.Pipe(duplex=False)
        self.process = processes.Process(target=_work, args=(sender, function, arguments))
        self.process.start()
        sender.close()
        self._receiver.recv()  # it has begun

    def kill_after(self, seconds: float) -> bool:
        """Kill it after a while; return whether it was still at work."""
        time.sleep(seconds)
        return self.kill()

    def kill(self) -> bool:
        """Kill it now; return whether it was still at work."""
        self.process.kill()
        self.process.join()
        return self.process.exitcode == -9

    def join(self) -> None:
        """Wait for the end of the work; raise what it raised."""
        self.process.join()
        if self.process.exitcode != 0:
            raise RuntimeError(self._receiver.recv())


def _work(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    sender.send("begun")
    try:
        function(*arguments)
    except Exception as error:
        sender.send(f"{type(error).__name__}: {error}")
        raise SystemExit(1) from error


def generate(root: str) -> None:
    """Make the small dataset."""
    make(Location.parse(root))


@cache
def whole_dataset(folder: Path) -> dict[str, bytes]:
    """Return the files of a dataset that nothing happened to."""
    make(Location.parse(str(folder / "whole")))
    return files(folder / "whole")


def accepted_blocks(dataset: Location) -> dict[int, bytes]:
    """Return the records of the blocks that a dataset in the making has accepted."""
    records = Location(f"{dataset.url}.blocks")
    names = [name for name in records.names() if name.endswith(".json")]
    return {int(name.removesuffix(".json")): (records / name).read_bytes() for name in names}


def count_blocks(dataset: Location, accepted: Mapping[int, bytes]) -> Outcome:
    """Return how many accepted blocks a complete dataset lacks, and how many samples it repeats."""
    attributes = read_attributes(dataset)
    assert attributes is not None
    final = attributes["blocks"]
    lost = sum(json.loads(record) != final[index] for index, record in accepted.items())
    seeds: Counter[int] = Counter()
    for part in ("train", "validation", "test"):
        opened = open_dataset(dataset)
        if "seed" in opened.to_xarray():
            seeds.update(opened.part(part, ["seed"])[:]["seed"].tolist())
    return Outcome(lost, sum(count - 1 for count in seeds.values()))


def generation_place(root: Path) -> Location:
    """Return where the small dataset lies."""
    return datasets.location_of(PLAN, Location.parse(str(root)))


def longer() -> BoundExperiment:
    """Return the experiment that is trained."""
    return experiment(epochs=EPOCHS)


def train_saving_often(place: Workplace) -> None:
    """Train, with a checkpoint after almost every batch."""
    training.SECONDS_BETWEEN_CHECKPOINTS = 0.02
    train(longer(), place, report=lambda message: None)


@cache
def training_data(folder: Path) -> Workplace:
    """Return the data that all trainings share, and a tracking database with tables only."""
    root = Location.parse(str(folder / "data"))
    plan = longer().data
    dataset = generated(plan, root).location
    uri = f"sqlite:///{folder}/empty.db"
    open_tracking(uri, root).experiment_id  # noqa: B018 - asking for it makes the tables
    return Workplace(root=root, dataset=dataset, tracking_uri=uri, study="faults", n_threads=1)


def new_place(data: Workplace, folder: Path, tracking_uri: str | None = None) -> Workplace:
    """Return a workplace with the same data, its own store and its own tracking database."""
    if tracking_uri is None:
        template = Path(data.tracking_uri.removeprefix("sqlite:///"))
        shutil.copy(template, folder / "mlflow.db")
        tracking_uri = f"sqlite:///{folder}/mlflow.db"
    return replace(data, root=Location.parse(str(folder)), tracking_uri=tracking_uri)


@cache
def whole_training(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return result and weights of a training that nothing happened to."""
    own = folder / "whole-training"
    own.mkdir(exist_ok=True)
    place = new_place(training_data(folder), own)
    result = train(longer(), place, report=lambda message: None)
    return comparable(result).to_plain(), weights(place)


def weights(place: Workplace) -> dict[str, Any]:
    """Return the weights that a finished training chose."""
    chosen = selected_weights(place.checkpoints(longer().identity))
    return {name: value.tolist() for name, value in chosen.items()}


def finish_and_count(place: Workplace, folder: Path) -> Outcome:
    """Train to the end, compare with the whole training, and count the epochs in MLflow."""
    result = train(longer(), place, report=lambda message: None)
    expected, expected_weights = whole_training(folder)
    assert comparable(result).to_plain() == expected, "the result differs from a whole training's"
    assert weights(place) == expected_weights, "the weights differ from those of a whole training"
    return count_steps(place, longer().identity, EPOCHS)


def count_steps(place: Workplace, identity: str, n_steps: int) -> Outcome:
    """Return how many epochs the tracking store lacks and how many it has twice, runs included."""
    tracking = place.tracking().at(registered_name("burgers"))
    found = tracking.client.search_runs([tracking.experiment_id], f"tags.identity = '{identity}'")
    steps: Counter[int] = Counter()
    for run in found:
        history = tracking.client.get_metric_history(run.info.run_id, "train/rel_l2")
        steps.update(metric.step for metric in history)
    lost = len(set(range(1, n_steps + 1)) - set(steps))
    twice = sum(count - 1 for count in steps.values()) + len(found[1:])
    return Outcome(lost, twice)


def checkpoints_of(place: Workplace) -> list[str]:
    """Return the names of the checkpoints that a training has accepted."""
    names = place.checkpoints(longer().identity).location.names()
    return [name.removesuffix(".sha256") for name in names if name.endswith(".sha256")]
