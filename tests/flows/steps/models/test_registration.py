"""Finished runs become models of a real registry, once each, and nothing fails if it is away."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.engine.own_server import free_port
from flows.steps.models.registration import Registrar, echo_models, register_once
from flows.steps.results import stored_result
from lsm_core.result import Result
from storage.location import Location
from storage.tracking.registry import ModelRegistry
from storage.tracking.store import open_tracking
from tests.flows.steps.trained_runs import cell, write_run
from tests.storage.tracking.mlflow_server import record_run

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


def finished_run(seed: int, root: Location) -> Result:
    """Write the folder of a finished run and return its result."""
    made = cell("burgers", "fno", seed, **PARAMETERS)
    write_run(made, root)
    result = stored_result(root, made.identity)
    assert result is not None
    return result


def test_each_finished_run_is_registered_once(folder: Path, root: Location, uri: str) -> None:
    run = finished_run(0, root)
    record_run(uri, folder, run.identity)
    for expected in (["pde-burgers/1"], ["pde-burgers/1"]):
        told: list[str] = []
        registrar = Registrar(root, uri, told.append)
        registrar.add(run)
        assert told == expected
    (version,) = ModelRegistry(uri, root).state("pde-burgers").newest_first()
    assert version.tags["identity"] == run.identity
    assert version.aliases == ()


def test_what_cannot_be_registered_is_told_and_fails_nothing(root: Location, uri: str) -> None:
    told: list[str] = []
    registrar = Registrar(root, uri, told.append)
    registrar.add(replace(finished_run(1, root), identity="0" * 16))
    registrar.settle()
    assert "there is no finished run 0000000000000000" in told[0]
    assert len(told) == 1


def test_a_run_that_mlflow_does_not_have_comes_with_its_model(root: Location, uri: str) -> None:
    run = finished_run(3, root)
    version = register_once(run.identity, root, uri)
    tracking = open_tracking(uri, root, "pde-burgers")
    found = tracking.client.search_runs(
        [tracking.experiment_id], f"tags.identity = '{run.identity}'"
    )
    assert [each.info.status for each in found] == ["FINISHED"]
    there = tracking.client.get_model_version(version.name, str(version.number))
    assert there.run_id == found[0].info.run_id


def test_a_version_whose_run_was_removed_keeps_its_number_elsewhere(
    root: Location, tmp_path: Path
) -> None:
    first = f"sqlite:///{tmp_path}/first.db"
    kept = Location.parse(str(tmp_path / "store"))
    for seed in (4, 5):
        register_once(finished_run(seed, kept).identity, kept, first)
    removed = ModelRegistry(first, kept).find("pde-burgers/1").tags["identity"]
    (kept / "checkpoints" / removed).remove()
    second = f"sqlite:///{tmp_path}/second.db"
    echo_models("pde-burgers", kept, second)
    there = ModelRegistry(second, kept).client.search_model_versions("name = 'pde-burgers'")
    assert {int(each.version): each.tags["identity"] == removed for each in there} == {
        1: True,
        2: False,
    }


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
