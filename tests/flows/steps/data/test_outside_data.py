"""Data that nobody here made, brought as a stranger would; what is not at hand is said."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.steps.data.file_arrays import files_of
from flows.steps.data.guessing import Wishes, guessed
from flows.steps.data.ingestion import Ingestion, plan_ingestion
from storage.location import Location
from tests.outside_data import beside, of_smithers


def outside(*names: str) -> list[Path]:
    paths = [beside(name) for name in names]
    if None in paths:
        pytest.skip(f"{' or '.join(names)} is not in ../shared/data/outside")
    return [path for path in paths if path]


def brought(tmp_path: Path, files: list[Path], **wishes: Any) -> Ingestion:
    found = files_of(files)
    root = Location.parse(str(tmp_path))
    return plan_ingestion(guessed("mine", found, Wishes(**wishes)), found, root)


def test_darcy_of_neuraloperator_is_a_grid_split_by_the_names_of_files(tmp_path: Path) -> None:
    job = brought(tmp_path, outside("darcy_train_16.pt", "darcy_test_16.pt"))
    assert job.schema.split_sizes == {"train": 900, "validation": 100, "test": 50}
    assert [(v.name, v.shape, v.role) for v in job.problem.arrays] == [
        ("x", (16, 16), "input"),
        ("y", (16, 16), "target"),
    ]


def test_burgers_of_neuraloperator_is_a_rollout(tmp_path: Path) -> None:
    job = brought(tmp_path, outside("burgers_train_16.pt", "burgers_test_16.pt"))
    assert job.problem.n_steps == 16
    assert job.schema.split_sizes == {"train": 720, "validation": 80, "test": 400}


def test_the_holed_plate_of_pina_has_nodes_that_move(tmp_path: Path) -> None:
    job = brought(tmp_path, outside("holed_poisson.pt"))
    assert job.problem.positions == "scattered points"
    first, second = (job.sample(place)["positions"] for place in job.order[:2])
    assert first.shape == (1352, 2)
    assert np.abs(first - second).max() > 0.01


def test_the_elastic_block_of_smithers_has_eleven_parameters(tmp_path: Path) -> None:
    folder = of_smithers("elastic_block")
    if folder is None:
        pytest.skip("`python -m tests.outside_data` brings the elastic block; it was not called")
    job = brought(tmp_path, [folder], targets=("snapshots",))
    assert job.problem.same_points
    assert {v.name: v.shape for v in job.problem.arrays} == {
        "positions": (1346, 2),
        "params": (11,),
        "snapshots": (1346, 2),
    }
