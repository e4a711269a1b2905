"""Finished runs have their result and a picture in a real tracking store, or get them later."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from flows.services import free_port
from flows.steps.attachments import Attachments, sample_picture
from flows.steps.runs_sync import sync
from flows.steps.training import open_tracking
from storage.checkpoints import Checkpoints
from storage.location import Location
from storage.run_journal import journals
from storage.run_log import Tracking
from tests.flows.trained_runs import cell, write_run

SMALL: dict[str, dict[str, Any]] = {
    "burgers": {"resolution": 32, "solver_points": 64, "solver_steps": 20},
    "darcy": {},
    "navier_stokes": {},
    "elasticity_p": {},
    "elasticity_g": {},
    "plasticity": {},
    "airfoil": {},
    "pipe": {},
}


def finished_run(root: Location, seed: int = 0, benchmark: str = "burgers") -> dict[str, Any]:
    """Write the folder of a finished run and return its result."""
    made = cell(benchmark, "fno", seed, **SMALL[benchmark])
    write_run(made, root)
    result = Checkpoints(root / "checkpoints" / made.identity).result()
    assert result is not None
    return result


def record(tracking: Tracking, result: dict[str, Any]) -> None:
    run = tracking.open_run(result["identity"], "a run", {})
    run.log(1, {"loss": 1.0})
    run.finish()


def files(tracking: Tracking, result: dict[str, Any]) -> dict[str, Path]:
    """Return the files of a run in a store that keeps them in a folder."""
    own = f"tags.identity = '{result['identity']}'"
    (run,) = tracking.client.search_runs([tracking.experiment_id], own)
    folder = Path(run.info.artifact_uri.removeprefix("file://"))
    return {path.name: path for path in folder.glob("*")}


@pytest.mark.parametrize("benchmark", SMALL)
def test_there_is_a_picture_of_every_problem(tmp_path: Path, benchmark: str) -> None:
    root = Location.parse(str(tmp_path))
    assert sample_picture(finished_run(root, benchmark=benchmark), root).startswith("<svg")


def test_a_finished_run_gets_its_files_once(tmp_path: Path) -> None:
    root = Location.parse(str(tmp_path))
    tracking = open_tracking(f"sqlite:///{tmp_path}/mlflow.db", root)
    result = finished_run(root)
    record(tracking, result)
    times = []
    for _ in range(2):
        attachments = Attachments(root, tracking)
        attachments.add(result)
        attachments.settle()
        kept = files(tracking, result)
        times.append({name: path.stat().st_mtime_ns for name, path in kept.items()})
    assert set(kept) == {"result.json", "sample.svg"}
    assert times[0] == times[1]
    assert json.loads(kept["result.json"].read_bytes()) == result
    assert kept["sample.svg"].read_text() == sample_picture(result, root)


def test_what_cannot_be_attached_is_told_and_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = Location.parse(str(tmp_path))
    tracking = open_tracking(f"sqlite:///{tmp_path}/mlflow.db", root)
    unknown, bare = finished_run(root, 0), finished_run(root, 1)
    record(tracking, bare)
    (root / "checkpoints" / bare["identity"] / "showcase.npz").remove()
    attachments = Attachments(root, tracking)
    for result in (unknown, bare):
        attachments.add(result)
    attachments.settle()
    assert set(files(tracking, bare)) == {"result.json"}
    told = [line for line in caplog.messages if "lacks files in MLflow" in line]
    assert len(told) == 2
    assert "has no run" in told[0]
    assert "showcase.npz" in told[1]


def test_a_server_that_is_away_is_asked_twice_and_runs_that_wait_have_their_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.run_log.PATIENCE", 0.1)
    root, uri = Location.parse(str(tmp_path)), f"http://127.0.0.1:{free_port()}"
    away = open_tracking(uri, root)
    waiting, others = finished_run(root, 0), [finished_run(root, seed) for seed in (1, 2)]
    record(away, waiting)
    with caplog.at_level(logging.WARNING):
        attachments = Attachments(root, open_tracking(uri, root))
        for result in (waiting, *others):
            attachments.add(result)
        assert attachments.missed == [waiting, *others]
        attachments.settle()
    assert "3 finished runs lack files in MLflow: the tracking store http" in caplog.messages[-1]
    (journal,) = journals(away.journal)
    queued = [entry.content["file"] for entry in journal.waiting if entry.kind == "file"]
    assert queued == ["result.json", "sample.svg"]
    (left,) = sync(away.journal)
    assert left.left == len(journal.waiting)
