"""A store and a database of an earlier version open, are moved, and nothing is lost.

`earlier_store.tar.xz` was made by commit c0c8393, before problems had experiments and names of
their own in MLflow: `lsm benchmark --preset smoke --benchmarks burgers --models fno unet`. Where it
lay is written as @STORE@, and its database as SQL; states of the optimiser were left out.
"""

import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient

from flows.steps.models.champions import champion_history
from flows.steps.models.prediction import Outputs, predict_file
from flows.steps.reports.results import read_outcomes
from flows.steps.reports.runs_sync import sync
from flows.steps.results import stored_result
from lsm_core.result import Result
from storage.datasets.reader import open_dataset
from storage.location import Location
from storage.tracking.registry import ModelRegistry

ARCHIVE = Path(__file__).parent / "earlier_store.tar.xz"
ERRORS = {"8c0c1d356bfdf288": 0.2831, "f2610b16fda54f0d": 0.5031}
"""What its own report says of its runs."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Location:
    folder = tmp_path_factory.mktemp("store")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    dump = folder / "mlflow.sql"
    for text in (dump, *folder.glob("artifacts/models/*/artifacts/MLmodel")):
        text.write_text(text.read_text().replace("@STORE@", str(folder)))
    with sqlite3.connect(folder / "mlflow.db") as database:
        database.executescript(dump.read_text())
    dump.unlink()
    return Location.parse(str(folder))


@pytest.fixture(scope="module")
def uri(root: Location) -> str:
    return f"sqlite:///{root.local_path}/mlflow.db"


def known_runs(uri: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what MLflow has of all runs but reports, by experiment and identity."""
    client, found = MlflowClient(uri, uri), {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            run_id = run.info.run_id
            if "report" in run.data.tags:
                continue
            found[experiment.name, run.data.tags["identity"]] = {
                "ended": (run.info.status, run.info.end_time),
                "parameters": run.data.params,
                "curves": {
                    name: [
                        (point.step, point.value, point.timestamp)
                        for point in client.get_metric_history(run_id, name)
                    ]
                    for name in run.data.metrics
                },
                "files": {file.path for file in client.list_artifacts(run_id)},
            }
    return found


@pytest.fixture(scope="module")
def before(root: Location, uri: str) -> dict[tuple[str, str], dict[str, Any]]:
    found = known_runs(uri)
    assert sorted(found) == [("benchmark", identity) for identity in sorted(ERRORS)]
    return found


@pytest.fixture(scope="module")
def moved(root: Location, uri: str, before: object) -> list[Any]:
    """Sync twice; return what the second time sent."""
    first = list(sync(root, uri))
    assert [each for each in first if each.left] == []
    assert sum(each.sent == "moved to the experiment of its problem" for each in first) == 2
    return [each for each in sync(root, uri) if each.sent or each.left]


def test_its_results_and_data_are_read(root: Location) -> None:
    for identity, error in ERRORS.items():
        result = stored_result(root, identity)
        assert result is not None
        assert result.test[Result.ERROR] == pytest.approx(error, abs=5e-5)
        data = open_dataset(root / "datasets" / "burgers" / result.dataset.name)
        assert data.digest == result.dataset.digest
    assert len(read_outcomes(root).comparisons()) == 1


def test_its_runs_are_moved_with_all_they_had(
    uri: str, before: dict[tuple[str, str], dict[str, Any]], moved: list[Any]
) -> None:
    assert moved == []
    after = known_runs(uri)
    for (_, identity), old in before.items():
        new = after["pde-burgers", identity]
        assert new["ended"] == old["ended"]
        assert old["parameters"].items() <= new["parameters"].items()
        assert old["files"] <= new["files"]
        lost = {
            name
            for name, points in old["curves"].items()
            if {value for _, value, _ in points}
            - {value for _, value, _ in new["curves"].get(name, [])}
        }
        # Means over seeds are in the comparison now.
        assert {name for name in lost if not name.startswith("leaderboard/")} == set()
        (error,) = {value for _, value, _ in new["curves"]["error in percent/test"]}
        assert error == pytest.approx(100 * ERRORS[identity], abs=5e-3)
    assert {name for name, _ in after} == {"pde-burgers", "comparison"}


def test_its_registered_models_have_their_numbers_champion_and_history(
    root: Location, uri: str, moved: list[Any]
) -> None:
    client = MlflowClient(uri, uri)
    assert [model.name for model in client.search_registered_models()] == ["pde-burgers"]
    state = ModelRegistry(uri, root).state("pde-burgers")
    assert {n: tags["identity"] for n, tags in state.versions.items()} == {
        1: "8c0c1d356bfdf288",
        2: "f2610b16fda54f0d",
    }
    champion = client.get_model_version_by_alias("pde-burgers", "champion")
    assert int(champion.version) == 1
    assert champion_history("burgers", root, uri)[-1].after == 1
    loaded = mlflow.pyfunc.load_model(champion.source)
    assert loaded.metadata.signature is not None


def test_its_champion_still_predicts(
    root: Location, uri: str, moved: list[Any], tmp_path: Path
) -> None:
    result = stored_result(root, "8c0c1d356bfdf288")
    assert result is not None
    data = open_dataset(root / "datasets" / "burgers" / result.dataset.name)
    given = data.part("test", ["initial", "final"])[:]
    np.savez(tmp_path / "given.npz", initial=given["initial"])
    outputs = Outputs(fields=tmp_path / "predicted.npz")
    predict_file("pde-burgers@champion", tmp_path / "given.npz", outputs, root, uri)
    predicted = np.load(tmp_path / "predicted.npz")["final"]
    axes = tuple(range(1, predicted.ndim))
    wrong = np.sqrt(np.square(predicted - given["final"]).sum(axes))
    errors = wrong / np.sqrt(np.square(given["final"]).sum(axes))
    assert errors.mean() == pytest.approx(result.test[Result.ERROR], rel=1e-4)
