"""Training on more samples than may be held: the same curve, in bounded memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from flows.steps.training.cells import bind
from flows.steps.training.fields import split_fields
from flows.steps.training.isolation import run_isolated
from flows.steps.training.run import train
from flows.steps.training.workplace import Workplace
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.plans import DataPlan
from lsm_core.models.fno import FnoConfig
from lsm_core.problems.sample import Sample
from lsm_core.problems.variable import Variable
from lsm_core.result import Result
from lsm_core.training.config import TrainingConfig
from storage.datasets.reader import open_dataset
from storage.location import Location
from tests.flows.steps.data.generation import generated

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Waves(Benchmark):
    """A random wave and its derivative: quick to make in any amount."""

    name: ClassVar[str] = "waves"
    title: ClassVar[str] = "Waves"
    space: ClassVar[tuple[str, ...]] = ("x",)
    positions: ClassVar[Literal["periodic nodes"]] = "periodic nodes"
    n_points: int

    @property
    def variables(self) -> tuple[Variable, ...]:
        shape = (self.n_points,)
        return (
            Variable(name="wave", dims=("x",), shape=shape, role="input"),
            Variable(name="slope", dims=("x",), shape=shape, role="target"),
        )

    @property
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        return {"x": np.arange(self.n_points) / self.n_points}

    def generate(self, seed: int) -> Sample:
        random = np.random.default_rng(seed)
        phase = 2 * np.pi * (self.coordinates["x"] * random.integers(1, 4) + random.random())
        return {
            "wave": np.sin(phase).astype(np.float32),
            "slope": np.cos(phase).astype(np.float32),
        }


def waves(n_points: int, n_train: int, window: int) -> Experiment:
    plan = DataPlan(
        benchmark=Waves(n_points=n_points),
        n_train=n_train,
        n_validation=8,
        n_test=8,
        samples_per_block=8,
    )
    config = TrainingConfig(epochs=2, batch_size=16, schedule="constant", shuffle_bytes=window)
    model = FnoConfig(width=2, n_modes=4, n_layers=1, head_width=4)
    return Experiment(preset="smoke", data=plan, model_name="fno", model=model, training=config)


def place(folder: Path, experiment: Experiment, memory: int) -> Workplace:
    root = Location.parse(str(folder / "data"))
    return Workplace(
        root=Location.parse(str(folder / f"with {memory} bytes")),
        dataset=generated(experiment.data, root).location,
        tracking_uri=f"sqlite:///{folder}/{memory}.db",
        study="tests",
        n_threads=1,
        memory=memory,
    )


def check_equal_curves(folder: Path, experiment: Experiment, budget: int) -> list[Result]:
    """Train with and without room for the samples and return both results."""
    results = [
        run_isolated(train, bind(experiment), place(folder, experiment, memory))
        for memory in (budget, 2**40)
    ]
    assert [result.environment["samples_in_memory"] for result in results] == [False, True]
    for name in ("train", "validation"):
        curves = [[getattr(epoch, name) for epoch in result.history] for result in results]
        assert curves[0] == curves[1], name
    assert results[0].test == results[1].test
    return results


def test_samples_read_from_the_store_give_the_curve_of_samples_in_memory(tmp_path: Path) -> None:
    budget = 64 * 2 * 32 * 4 // 4
    check_equal_curves(tmp_path, waves(n_points=32, n_train=64, window=budget), budget)


def test_a_window_larger_than_the_budget_is_refused(tmp_path: Path) -> None:
    experiment = waves(n_points=32, n_train=64, window=MIB)
    dataset = open_dataset(place(tmp_path, experiment, 100).dataset)
    with pytest.raises(ValueError, match="take a smaller window or a larger budget"):
        split_fields(dataset, experiment.data.benchmark, experiment.training, 0, memory=1000)


def test_a_fraction_is_the_first_samples_and_smaller_ones_lie_in_larger(tmp_path: Path) -> None:
    experiment = waves(n_points=32, n_train=60, window=MIB)
    dataset = open_dataset(place(tmp_path, experiment, MIB).dataset)

    def seen(fraction: float) -> set[tuple[float, ...]]:
        config = replace(experiment.training, fraction=fraction)
        fields = split_fields(dataset, experiment.data.benchmark, config, 0, memory=MIB)
        batches = list(fields.batches.epoch(0))
        assert sum(map(len, batches)) == fields.batches.n_samples == round(60 * fraction)
        return {tuple(row.flatten().tolist()) for batch in batches for row in batch.inputs}

    assert seen(0.2) < seen(0.6) < seen(1.0)


@pytest.mark.slow
def test_memory_stays_bounded_on_four_times_the_budget(tmp_path: Path) -> None:
    budget = 64 * MIB
    experiment = waves(n_points=16384, n_train=2048, window=budget)
    outside, inside = check_equal_curves(tmp_path, experiment, budget)
    print(f"peak MiB: {outside.peak_bytes / MIB:.0f} and {inside.peak_bytes / MIB:.0f}")
    assert inside.peak_bytes - outside.peak_bytes > 128 * MIB
