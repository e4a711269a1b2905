"""Finished runs have their result and a picture in a real tracking store, or get them later."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from flows.engine.own_server import free_port
from flows.steps.reports.attachments import Attachments, sample_picture
from flows.steps.results import stored_result
from lsm_core.result import Result
from storage.location import Location
from storage.tracking.store import Tracking, open_tracking
from tests.flows.steps.trained_runs import cell, write_run

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


def finished_run(root: Location, seed: int = 0, benchmark: str = "burgers") -> Result:
    """Write the folder of a finished run and return its result."""
    made = cell(benchmark, "fno", seed, **SMALL[benchmark])
    write_run(made, root)
    result = stored_result(root, made.identity)
    assert result is not None
    return result


def files(tracking: Tracking, result: Result) -> dict[str, Path]:
    """Return the files of a run in a store that keeps them in a folder."""
    own = f"tags.identity = '{result.identity}'"
    (run,) = tracking.client.search_runs([tracking.at("pde-burgers").experiment_id], own)
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
    times = []
    for _ in range(2):
        attachments = Attachments(root, tracking)
        attachments.add(result)
        attachments.settle()
        kept = files(tracking, result)
        times.append({name: path.stat().st_mtime_ns for name, path in kept.items()})
    assert set(kept) == {"result.json", "sample.svg", "images"}
    (picture,) = kept["images"].glob("sample*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert times[0] == times[1]
    assert Result.from_plain(json.loads(kept["result.json"].read_bytes())) == result
    assert kept["sample.svg"].read_text() == sample_picture(result, root)


def test_what_cannot_be_attached_is_told_and_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = Location.parse(str(tmp_path))
    tracking = open_tracking(f"sqlite:///{tmp_path}/mlflow.db", root)
    gone, bare = finished_run(root, 0), finished_run(root, 1)
    (root / "checkpoints" / gone.identity / "result.json").write_bytes(b"{")
    (root / "checkpoints" / bare.identity / "showcase.npz").remove()
    attachments = Attachments(root, tracking)
    for result in (gone, bare):
        attachments.add(result)
    attachments.settle()
    assert set(files(tracking, bare)) == {"result.json"}
    told = [line for line in caplog.messages if "lacks files in MLflow" in line]
    assert len(told) == 2
    assert "not readable" in told[0]
    assert "showcase.npz" in told[1]


def test_a_server_that_is_away_is_asked_twice_and_has_the_files_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, uri = Location.parse(str(tmp_path)), f"http://127.0.0.1:{free_port()}"
    runs = [finished_run(root, seed) for seed in (0, 1, 2)]
    with caplog.at_level(logging.WARNING):
        attachments = Attachments(root, open_tracking(uri, root))
        for result in runs:
            attachments.add(result)
        assert attachments.missed == runs
        attachments.settle()
    assert "3 finished runs lack files in MLflow: the tracking store http" in caplog.messages[-1]
    back = open_tracking(f"sqlite:///{tmp_path}/mlflow.db", root)
    attachments.tracking = back
    attachments.settle()
    assert attachments.missed == []
    for result in runs:
        assert set(files(back, result)) == {"result.json", "sample.svg", "images"}
