"""Files of one's own that are larger than the memory which a run may take."""

import multiprocessing
import resource
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from flows.steps.data.file_arrays import files_of
from flows.steps.data.given import given_plan, problem_named
from flows.steps.data.guessing import Wishes, guessed
from flows.steps.data.ingestion import keep_problem, plan_ingestion
from flows.steps.training.cells import bind
from flows.steps.training.isolation import run_isolated
from flows.steps.training.run import train
from flows.steps.training.workplace import Workplace
from lsm_core.experiments.presets import experiment
from lsm_core.models.fno import FnoConfig
from lsm_core.result import Result
from storage.location import Location

MIB = 2**20
BUDGET = 128 * MIB
N_POINTS = 16384
N_LARGE = 4 * BUDGET // (2 * 4 * N_POINTS)
"""Samples of input and target that take four times the budget."""


def write_waves(path: Path, n_samples: int) -> Path:
    """Write random waves and their slopes, some at a time."""
    random = np.random.default_rng(0)
    x = np.arange(N_POINTS) / N_POINTS
    with h5py.File(path, "w") as file:
        wave, slope = (
            file.create_dataset(n, (n_samples, N_POINTS), np.float32) for n in ("wave", "slope")
        )
        for first in range(0, n_samples, 64):
            size = min(64, n_samples - first)
            phase = 2 * np.pi * (x * random.integers(1, 4, (size, 1)) + random.random((size, 1)))
            wave[first : first + size], slope[first : first + size] = np.sin(phase), np.cos(phase)
    return path


def ingest(path: Path, store: Path) -> int:
    """Bring a file in and return the most that this process ever had in memory."""
    files, root = files_of([path]), Location.parse(str(store))
    job = plan_ingestion(
        guessed("waves", files, Wishes(inputs=("wave",), targets=("slope",))), files, root
    )
    for index in job.begin():
        job.ingest_block(index)
    keep_problem(job, root)
    scale = 1 if sys.platform == "darwin" else 1024
    return scale * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def in_a_process(function: Any, *arguments: Any) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def trained(store: Path) -> Result:
    root = Location.parse(str(store))
    made, plan = experiment("smoke", problem_named("waves", root), "fno"), given_plan("waves", root)
    config = replace(made.training, epochs=1, batch_size=16, shuffle_bytes=BUDGET // 2)
    model = FnoConfig(width=2, n_modes=4, n_layers=1, head_width=4)
    place = Workplace(
        root=root,
        dataset=root / "datasets" / "waves" / plan.dataset,
        tracking_uri=f"sqlite:///{store}/mlflow.db",
        study="tests",
        n_threads=1,
        memory=BUDGET,
    )
    whole = replace(made, data=plan, training=config, model=model)
    result: Result = run_isolated(train, bind(whole), place)
    return result


@pytest.mark.slow
def test_files_of_four_times_the_budget_are_ingested_and_trained_on_within_it(
    tmp_path: Path,
) -> None:
    peaks = {}
    for name, n_samples in (("small", 64), ("large", N_LARGE)):
        path = write_waves(tmp_path / f"{name}.h5", n_samples)
        ingesting = in_a_process(ingest, path, tmp_path / name)
        result = trained(tmp_path / name)
        assert result.environment["samples_in_memory"] == (name == "small")
        peaks[name] = np.array([ingesting, result.peak_bytes])
    n_bytes = (tmp_path / "large.h5").stat().st_size
    assert n_bytes >= 4 * BUDGET
    more = peaks["large"] - peaks["small"]
    print(f"of {n_bytes / MIB:.0f} MiB, ingested and trained within {more / MIB} MiB more")
    assert (more < BUDGET).all()
