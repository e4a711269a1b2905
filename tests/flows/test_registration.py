"""Finished runs become models of a real registry, once each, and nothing fails if it is away."""

from pathlib import Path
from typing import Any

import pytest

from flows.services import free_port
from flows.steps.registration import Registrar
from flows.steps.training import open_tracking
from storage.checkpoints import Checkpoints
from storage.location import Location
from storage.model_registry import ModelRegistry
from tests.flows.trained_runs import cell, write_run
from tests.storage.mlflow_server import record_run

PARAMETERS = {"resolution": 32, "solver_points": 64, "solver_steps": 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def root(folder: Path) -> Location:
    return Location.parse(str(folder))


@pytest.fixture(scope="module")
def uri(folder: Path, root: Location) -> str:
    address = f"sqlite:///{folder}/mlflow.db"
    assert open_tracking(address, root).experiment_id
    return address


def finished_run(seed: int, root: Location) -> dict[str, Any]:
    """Write the folder of a finished run and return its result."""
    made = cell("burgers", "fno", seed, **PARAMETERS)
    write_run(made, root)
    result = Checkpoints(root / "checkpoints" / made.identity).result()
    assert result is not None
    return result


def test_each_finished_run_is_registered_once(folder: Path, root: Location, uri: str) -> None:
    run = finished_run(0, root)
    record_run(uri, folder, run["identity"])
    for expected in (["lsm-burgers/1"], ["lsm-burgers/1"]):
        told: list[str] = []
        registrar = Registrar(root, uri, told.append)
        registrar.add(run)
        assert told == expected
    (version,) = ModelRegistry(uri).versions("lsm-burgers")
    assert version.tags["identity"] == run["identity"]
    assert version.aliases == ()


def test_what_cannot_be_registered_is_told_and_fails_nothing(root: Location, uri: str) -> None:
    told: list[str] = []
    registrar = Registrar(root, uri, told.append)
    registrar.add(finished_run(1, root))  # of which the tracking store knows nothing
    registrar.add({"identity": "0" * 16, "benchmark": "burgers"})
    registrar.settle()
    assert "has no run" in told[0]
    assert "there is no finished run 0000000000000000" in told[1]
    assert len(told) == 2


def test_a_registry_that_is_away_is_asked_once(root: Location) -> None:
    told: list[str] = []
    registrar = Registrar(root, f"http://127.0.0.1:{free_port()}", told.append)
    runs = [finished_run(seed, root) for seed in (0, 1, 2)]
    for run in runs:
        registrar.add(run)
    assert registrar.missed == runs
    assert told == []
    registrar.settle()
    (sentence,) = told
    assert sentence.startswith("3 finished runs are not registered: the tracking store ")
    assert sentence.endswith("without training again")
