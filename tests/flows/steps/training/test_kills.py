"""A run that is killed again and again ends as if nothing had happened."""

import random
import threading
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from flows.steps.training import run as training
from flows.steps.training.run import train
from flows.steps.training.workplace import Workplace, selected_weights
from lsm_core.experiments.experiment import BoundExperiment
from tests.flows.steps.training.test_ranks import elsewhere
from tests.flows.steps.training.test_run import comparable, experiment, workplace


def longer() -> BoundExperiment:
    return experiment(epochs=8)


def train_saving_often(place: Workplace) -> None:
    training.SECONDS_BETWEEN_CHECKPOINTS = 0.05
    train(longer(), place, report=lambda message: None)


def kill_at_random(place: Workplace, moments: random.Random, n_kills: int) -> int:
    """Start the run again and again, kill it at a random moment each time; return the kills.

    A run is killed between its start and a while after its first progress, so that kills fall on
    start-up, training, saving and evaluation.
    """
    context = get_context("spawn")
    killed = 0
    while killed < n_kills:
        process = context.Process(target=train_saving_often, args=(place,))
        process.start()
        before = _progress(place)
        deadline = time.monotonic() + 60
        while _progress(place) == before and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        threading.Event().wait(moments.uniform(0.0, 0.4))
        process.kill()
        process.join()
        killed += 1
        if place.checkpoints(longer().identity).result() is not None:
            break
    return killed


def _progress(place: Workplace) -> list[str]:
    return [
        name for name in place.checkpoints(longer().identity).location.names() if "sha256" in name
    ]


def metric_history(place: Workplace) -> dict[str, list[tuple[int, float]]]:
    client = place.tracking().client
    (run,) = client.search_runs(["1"])
    assert run.info.status == "FINISHED"
    timed = ("time/", "memory/", "system/")
    return {
        name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
        if not name.startswith(timed)
    }


def check_kills(folder: Path, n_kills: int) -> None:
    (folder / "whole").mkdir()
    (folder / "killed").mkdir()
    place = workplace(folder, "data")
    whole, broken = elsewhere(place, folder / "whole"), elsewhere(place, folder / "killed")
    expected = train(longer(), whole, report=lambda message: None)
    n_done = kill_at_random(broken, random.Random(n_kills), n_kills)
    assert n_done >= min(3, n_kills)
    result = train(longer(), broken, report=lambda message: None)
    assert comparable(result) == comparable(expected)
    assert _weights(broken) == _weights(whole)
    histories = metric_history(broken)
    assert histories == metric_history(whole)
    assert [step for step, _ in histories["train/rel_l2"]] == list(range(1, 9))


def _weights(place: Workplace) -> dict[str, Any]:
    return {
        name: value.tolist()
        for name, value in selected_weights(place.checkpoints(longer().identity)).items()
    }


@pytest.mark.slow
def test_a_run_killed_twice_ends_with_the_same_weights_and_history(tmp_path: Path) -> None:
    check_kills(tmp_path, n_kills=2)


@pytest.mark.slow
def test_a_run_killed_ten_times_ends_with_the_same_weights_and_history(tmp_path: Path) -> None:
    check_kills(tmp_path, n_kills=10)
