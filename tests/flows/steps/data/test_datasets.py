"""A dataset whose making is killed at any moment ends as if nothing had happened."""

import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from flows.errors import GenerationFailed
from flows.steps.data.datasets import location_of, plan_generation
from lsm_core.benchmarks.burgers import Burgers
from lsm_core.experiments.plans import DataPlan
from lsm_core.problems.sample import Sample
from lsm_core.solvers.convergence import SolveFailed
from storage.datasets.reader import open_dataset
from storage.errors import StorageError
from storage.location import Location
from tests.flows.steps.data.generation import generated

PLAN = DataPlan(
    benchmark=Burgers(resolution=32, solver_points=64, solver_steps=20),
    n_train=40,
    n_validation=6,
    n_test=10,
    samples_per_block=4,
)

SCRIPT = """
import sys
from flows.steps.data.datasets import plan_generation
from lsm_core.benchmarks.burgers import Burgers
from lsm_core.experiments.plans import DataPlan
from storage.location import Location

plan = DataPlan(benchmark=Burgers(resolution=32, solver_points=64, solver_steps=20),
                n_train=40, n_validation=6, n_test=10, samples_per_block=4)
root = Location.parse(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
job = plan_generation(plan, root)
for index in job.begin():
    job.generate_block(index)
job.finish()
"""


def make(root: Location) -> None:
    generated(PLAN, root)


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_stored_samples_are_those_of_their_seeds(tmp_path: Path) -> None:
    root = Location.parse(str(tmp_path))
    make(root)
    test = generated(PLAN, root).part("test", ["initial", "final"])
    alone = PLAN.benchmark.generate(2_000_003)
    np.testing.assert_array_equal(test[3]["initial"], alone["initial"])
    np.testing.assert_array_equal(test[3]["final"], alone["final"])


def test_the_store_says_where_its_data_came_from(tmp_path: Path) -> None:
    root = Location.parse(str(tmp_path))
    make(root)
    labelled = generated(PLAN, root).to_xarray()
    provenance = labelled.attrs["provenance"]
    assert provenance["generator"] == "lsm_core.benchmarks.burgers"
    assert provenance["parameters"]["resolution"] == 32
    assert provenance["first_seeds"] == {"train": 0, "validation": 1_000_000, "test": 2_000_000}
    assert labelled.attrs["positions"] == "periodic nodes"


def test_xarray_opens_a_generated_dataset_without_a_warning(tmp_path: Path) -> None:
    dataset = generated(PLAN, Location.parse(str(tmp_path)))
    labelled = xr.open_zarr(dataset.location.url)  # a warning is an error here
    assert set(labelled) == {"initial", "final", "seed", "split"}
    assert labelled.attrs["digest"] == dataset.digest


def test_children_write_for_the_schema_that_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = plan_generation(replace(PLAN, n_train=4), Location.parse(str(tmp_path)))
    missing = job.begin()

    def read_again(module: str) -> str:
        raise AssertionError("the sources were read again")

    monkeypatch.setattr("flows.steps.data.datasets.source_digest", read_again)
    for index in missing:
        pickle.loads(pickle.dumps(job)).generate_block(index)
    job.finish()
    assert open_dataset(job.location).attributes["recipe"] == job.schema.recipe


@dataclass(frozen=True, kw_only=True)
class SometimesUnsolvable(Burgers):
    failing: tuple[int, ...] = ()

    def generate_many(self, seeds: Sequence[int]) -> list[Sample]:
        return [self.generate(seed) for seed in seeds]

    def generate(self, seed: int) -> Sample:
        if seed in self.failing:
            raise SolveFailed("the test solver", 3, 1.0, 0.1)
        return super().generate(seed)


def unsolvable(*failing: int) -> DataPlan:
    benchmark = SometimesUnsolvable(
        resolution=32, solver_points=64, solver_steps=20, failing=failing
    )
    return replace(PLAN, benchmark=benchmark, n_train=6, n_validation=0, n_test=0)


def test_a_sample_that_does_not_converge_is_replaced_and_named(tmp_path: Path) -> None:
    root = Location.parse(str(tmp_path))
    plan = unsolvable(2, 100_000_002, 5)
    part = generated(plan, root).part("train", ["initial", "seed"])
    assert part[:]["seed"].tolist() == [0, 1, 200_000_002, 3, 4, 100_000_005]
    expected = PLAN.benchmark.generate(200_000_002)["initial"]
    np.testing.assert_array_equal(part[2]["initial"], expected)


def test_a_problem_that_is_never_solved_ends_with_a_sentence(tmp_path: Path) -> None:
    root = Location.parse(str(tmp_path))
    plan = unsolvable(*(1 + attempt * 100_000_000 for attempt in range(6)))
    job = plan_generation(plan, root)
    job.begin()
    with pytest.raises(GenerationFailed, match="seed 1 and its 5 replacements"):
        job.generate_block(0)


@pytest.mark.parametrize("n_kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_ends_with_the_same_bytes(n_kills: int, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    started = time.monotonic()
    make(Location.parse(str(whole)))
    seconds = time.monotonic() - started
    moments = random.Random(0)
    cut_short = 0
    for _ in range(n_kills):
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(killed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write(b"go\n")
        process.stdin.flush()
        # Several blocks at a time, so that kills fall into template, blocks and completion alike.
        time.sleep(moments.uniform(0.02, 4 / n_kills) * seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        location = location_of(PLAN, Location.parse(str(killed)))
        try:
            open_dataset(location)
        except StorageError:
            cut_short += 1
        else:
            # It had ended, though perhaps not swept up after the mark of completion, which the
            # next call does. The next kill meets a new beginning.
            make(Location.parse(str(killed)))
            assert files(killed) == files(whole)
            shutil.rmtree(killed)
    make(Location.parse(str(killed)))
    assert files(killed) == files(whole)
    assert cut_short > 0


@pytest.mark.parametrize("name", ["resolution", "viscosity"])
def test_another_problem_lies_elsewhere(name: str, tmp_path: Path) -> None:
    other = replace(
        PLAN,
        benchmark=replace(PLAN.benchmark, **{name: 2 * getattr(PLAN.benchmark, name)}),
    )
    root = Location.parse(str(tmp_path))
    assert location_of(other, root) != location_of(PLAN, root)
