"""All that a store holds comes back in MLflow: after its loss, and in a server elsewhere."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from safetensors.torch import save

from flows.engine.own_server import free_port
from flows.steps.models.champions import promote
from flows.steps.models.registration import register_run
from flows.steps.reports.attachments import Attachments
from flows.steps.reports.comparison_runs import sync_comparison
from flows.steps.reports.efficiency import log_efficiency
from flows.steps.reports.results import keep_cost, keep_outcomes
from flows.steps.reports.runs_sync import Synced, describe, send_stored_report, sync
from flows.steps.results import keep_begun, saved_history, stored_result
from flows.steps.training.run_record import finished_record, unfinished_record
from lsm_core.result import Begun
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from storage.tracking.echo import send_within_patience
from storage.tracking.report_page import EXPERIMENT
from storage.tracking.store import open_tracking
from tests.flows.steps.trained_runs import cell, write_run
from tests.lsm_core.reporting.test_efficiency import cost
from tests.storage.tracking.mlflow_server import running_server

PARAMETERS = {"resolution": 32, "solver_points": 64, "solver_steps": 20}
SUITE, OTHER = "benchmark-smoke", "stability-smoke"
COST = cost(64, device="cpu", machine="2 threads", measured="2026-01-01T00:00:00+00:00")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Location:
    return Location.parse(str(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def uri(root: Location) -> str:
    return f"sqlite:///{root.local_path}/mlflow.db"


@pytest.fixture(scope="module")
def before(root: Location, uri: str) -> dict[str, Any]:
    """Return what MLflow has of a store whose runs were recorded as they went along."""
    tracking = open_tracking(uri, root)
    runs = [cell("burgers", "fno", seed, **PARAMETERS) for seed in (0, 1)]
    attachments = Attachments(root, tracking)
    for made in runs:
        write_run(made, root)
        begun = begin(root, made.identity)
        result = stored_result(root, made.identity)
        assert result is not None
        assert send_within_patience(tracking, finished_record(result, begun))
        attachments.add(result)
    keep_outcomes(root, [replace(result, study="stability", setting="twice")])
    Attachments(root, tracking, [OTHER]).add(result)
    killed = begin(root, cut_off(root))
    history = saved_history(Checkpoints(root / "checkpoints" / killed.identity))
    assert send_within_patience(tracking, unfinished_record(killed, history))
    keep_cost(root, COST)
    log_efficiency(COST, uri, root)
    folder = root / "reports" / SUITE
    content = {
        "index.html": "<p>page",
        "report.md": "page",
        "results.json": json.dumps([{"finished": "2026-01-01T00:00:10+00:00"}]),
    }
    for name, text in content.items():
        (folder / name).write_bytes(text.encode())
    send_stored_report(root, open_tracking(uri, root, EXPERIMENT), SUITE)
    register_run(runs[0].identity, root, uri)
    register_run(runs[1].identity, root, uri, alias="challenger")
    promote("pde-burgers/2", "by hand", root, uri)
    assert list(sync_comparison(root, tracking))
    return known(uri)


def begin(root: Location, identity: str) -> Begun:
    """Note in the store that a run was begun, as a training does."""
    checkpoints = Checkpoints(root / "checkpoints" / identity)
    source = stored_result(root, identity) or next(
        found
        for each in (root / "checkpoints").names()
        if (found := stored_result(root, each)) is not None
    )
    plain = {**source.to_plain(), "identity": identity, "started": 1_767_225_000_000}
    return keep_begun(checkpoints, Begun.from_plain(plain))


def cut_off(root: Location) -> str:
    """Write the folder of a run that was killed after two epochs, and return its identity."""
    checkpoints = Checkpoints(root / "checkpoints" / "killed")
    result = stored_result(root, (root / "checkpoints").names()[0])
    assert result is not None
    notes = {"history": result.to_plain()["history"][:2]}
    checkpoints.save(2, save({}, {"state": json.dumps({"notes": notes})}))
    return "killed"


def known(uri: str) -> dict[str, Any]:
    """Return all that MLflow has of runs and models but its own numbers, its own tags and loads."""
    client = MlflowClient(uri, uri)
    runs = {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            run_id, info = run.info.run_id, run.info
            runs[experiment.name, run.data.tags["identity"]] = {
                "info": (info.run_name, info.status, info.start_time, info.end_time),
                "parameters": run.data.params,
                "tags": {k: v for k, v in run.data.tags.items() if not k.startswith("mlflow.")},
                "curves": {
                    name: [
                        (point.step, point.value, point.timestamp)
                        for point in client.get_metric_history(run_id, name)
                    ]
                    for name in run.data.metrics
                },
                "files": contents(client, uri, f"runs:/{run_id}"),
            }
    models = {}
    for model in client.search_registered_models():
        found = client.search_model_versions(f"name = '{model.name}'")
        aliases = {alias: int(number) for alias, number in model.aliases.items()}
        models[model.name] = {
            "versions": {int(each.version): dict(each.tags) for each in found},
            "champion": (aliases, dict(model.tags)),
        }
    return {"runs": runs, "models": models}


def contents(client: MlflowClient, uri: str, address: str) -> dict[str, bytes]:
    """Return the files of a run, by name."""
    run_id = address.rpartition("/")[2]
    return {
        file.path: Path(
            mlflow.artifacts.download_artifacts(
                run_id=run_id, artifact_path=file.path, tracking_uri=uri
            )
        ).read_bytes()
        for file in client.list_artifacts(run_id)
        if not file.is_dir  # pictures have names of MLflow's own
    }


def lose(root: Location) -> None:
    """Remove MLflow's database and files, as when a disk is lost."""
    folder = root.local_path
    assert folder is not None
    (folder / "mlflow.db").unlink(missing_ok=True)
    shutil.rmtree(folder / "artifacts")


def test_what_was_lost_is_back_as_it_was_and_a_second_time_nothing_is_sent(
    root: Location, uri: str, before: dict[str, Any]
) -> None:
    trainings = [name for name, _ in before["runs"] if name != "comparison"]
    assert len(trainings) == 5
    assert before["models"]["pde-burgers"]["champion"][0]["champion"] == 2
    shared = [
        run
        for (experiment, _), run in before["runs"].items()
        if experiment != "comparison" and f"suite/{OTHER}" in run["tags"]
    ]
    assert len(shared) == 1
    lose(root)
    uri = f"sqlite:///{root.local_path}/new.db"  # this process holds the old one open
    synced = list(sync(root, uri))
    assert [each for each in synced if each.left] == []
    assert known(uri) == before
    lines = describe(synced)
    assert any("run killed: begun, 12 points of curves" in line for line in lines)
    again = list(sync(root, uri))
    assert [each for each in again if each.sent or each.left] == []
    assert describe(again) == ["MLflow has all that the store holds of 8 things"]
    assert known(uri) == before


def test_another_process_brings_a_deleted_database_back_in_its_place(
    root: Location, uri: str, before: dict[str, Any]
) -> None:
    lose(root)
    environment = {**os.environ, "LSM_STORE": str(root), "MLFLOW_TRACKING_URI": uri}
    command = [sys.executable, "-m", "flows.cli", "runs", "sync"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "run killed: begun, 12 points of curves" in done.stdout
    # By another name of the file: this process holds the one that was deleted open.
    assert known(f"sqlite:///{root.local_path}/./mlflow.db") == before


@pytest.mark.slow
def test_a_server_elsewhere_gets_the_same(
    root: Location, before: dict[str, Any], tmp_path: Path
) -> None:
    with running_server(tmp_path) as address:
        assert not any(each.left for each in sync(root, address))
        assert known(address) == before
        assert not any(each.sent or each.left for each in sync(root, address))


class Killed(BaseException):
    pass


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list; a number in it says before which change of MLflow the process is killed."""
    countdown: list[int] = []

    def guarded(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if countdown:
                countdown[0] -= 1
                if countdown[0] < 0:
                    countdown.clear()
                    raise Killed
            return function(*arguments, **named)

        return call

    changes = ("create_run", "log_batch", "log_artifact", "set_tag", "set_terminated")
    models = ("log_model_artifacts", "create_model_version", "set_registered_model_alias")
    for name in (*changes, *models):
        monkeypatch.setattr(MlflowClient, name, guarded(getattr(MlflowClient, name)))
    return countdown


@pytest.mark.slow
def test_one_that_was_killed_again_and_again_goes_on(
    root: Location, before: dict[str, Any], tmp_path: Path, dying: list[int]
) -> None:
    uri, n_kills = f"sqlite:///{tmp_path}/mlflow.db", 0
    while True:
        dying[:] = [3]
        try:
            synced = list(sync(root, uri))
        except Killed:
            n_kills += 1
            continue
        break
    dying.clear()
    assert n_kills >= 5
    assert not any(each.left for each in synced)
    assert known(uri) == before


def test_a_server_that_is_away_is_said_once_and_without_its_password(root: Location) -> None:
    (left,) = sync(root, f"http://me:secret@127.0.0.1:{free_port()}")
    assert left.what == "everything"
    assert "cannot be used" in left.left
    assert "secret" not in left.left
    assert describe([left])[0].startswith("everything: not sent: the tracking store http://127")


def test_what_cannot_be_read_is_left_and_stops_nothing_else(tmp_path: Path) -> None:
    root = Location.parse(str(tmp_path))
    for identity in ("broken", "never begun"):
        Checkpoints(root / "checkpoints" / identity).save(1, b"nothing")
    (root / "checkpoints" / "broken" / "result.json").write_bytes(b"{")
    synced = sync(root, f"sqlite:///{tmp_path}/mlflow.db")
    first, second = (each for each in synced if each.what.startswith("run "))
    assert "result.json is not readable" in first.left
    assert second == Synced(what="run never begun")


def test_an_empty_store_has_nothing_to_send() -> None:
    assert describe([]) == ["MLflow has all that the store holds of 0 things"]
