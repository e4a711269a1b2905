"""Whether anything is left to do for a suite, on a real tracking database."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.entities import RunTag

from flows.steps.reports import settled
from flows.steps.reports.settled import (
    Meaning,
    keep_meaning,
    note_settled,
    request_digest,
    settled_results,
)
from flows.steps.results import keep_result
from flows.steps.training.cells import benchmark_cells
from lsm_core.result import Result
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from storage.tracking.charts_page import suite_tag
from storage.tracking.echo import FILES
from storage.tracking.registry import registered_name
from storage.tracking.store import Tracking, open_tracking
from tests.lsm_core.reporting.results import result

SUITE = "benchmark-smoke"
CELLS = benchmark_cells("smoke", ["burgers"], ["lsm", "fno"], [0])
ALL = Meaning([cell.identity for cell in CELLS], ["burgers"], "#/experiments/7")


@pytest.fixture
def root(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path))


def recorded(root: Location, tracking: Tracking, *, with_files: bool = True) -> list[Result]:
    """Record runs as a suite leaves them: results, runs in MLflow, a report."""
    results = [result(identity=cell.identity, benchmark="burgers") for cell in CELLS]
    experiment = tracking.at(registered_name("burgers"))
    for each in results:
        keep_result(Checkpoints(root / "checkpoints" / each.identity), each)
        run = tracking.client.create_run(experiment.experiment_id)
        tags = {"identity": each.identity, suite_tag(SUITE): "yes"}
        if with_files:
            tags[FILES] = "1"
        tracking.client.log_batch(run.info.run_id, tags=[RunTag(k, v) for k, v in tags.items()])
        tracking.client.set_terminated(run.info.run_id)
    folder = root / "reports" / SUITE
    (folder / "index.html").write_bytes(b"page")
    identities = [{"identity": each.identity} for each in results]
    (folder / "results.json").write_bytes(json.dumps(identities).encode())
    return results


def test_a_suite_is_settled_when_it_was_noted_and_everything_is_still_there(
    root: Location, tmp_path: Path
) -> None:
    tracking = open_tracking(f"sqlite:///{tmp_path}/mlflow.db", root)
    results = recorded(root, tracking)
    assert settled_results(root, tracking, SUITE, ALL) is None
    note_settled(root, tracking, SUITE, results, registered=False)
    assert settled_results(root, tracking, SUITE, ALL) == results
    assert (
        settled_results(root, tracking, SUITE, Meaning(ALL.identities[:1], ["burgers"]))
        == results[:1]
    )
    assert settled_results(root, tracking, SUITE, ALL, SUITE) == results
    assert settled_results(root, tracking, SUITE, ALL, "another-report") is None
    (more,) = benchmark_cells("smoke", ["burgers"], ["unet"], [0])
    with_more = Meaning([*ALL.identities, more.identity], ["burgers"])
    assert settled_results(root, tracking, SUITE, with_more) is None
    # Another tracking store knows nothing of the runs.
    other = open_tracking(f"sqlite:///{tmp_path}/other.db", root)
    assert settled_results(root, other, SUITE, ALL) is None
    page = root / "reports" / SUITE / "index.html"
    page.remove()
    assert settled_results(root, tracking, SUITE, ALL) is None
    page.write_bytes(b"page")
    (root / "checkpoints" / CELLS[0].identity / "result.json").remove()
    assert settled_results(root, tracking, SUITE, ALL) is None


def test_what_mlflow_lacks_is_not_settled(root: Location, tmp_path: Path) -> None:
    tracking = open_tracking(f"sqlite:///{tmp_path}/mlflow.db", root)
    results = recorded(root, tracking, with_files=False)
    note_settled(root, tracking, SUITE, results, registered=False)
    assert settled_results(root, tracking, SUITE, ALL) is None
    results = recorded(root, tracking)
    note_settled(root, tracking, SUITE, results, registered=True)  # there is no model
    assert settled_results(root, tracking, SUITE, ALL) is None


COMMAND = ["benchmark", "--preset", "smoke", "--benchmarks", "burgers", "--models", "lsm", "fno"]
ANSWERED = f"""
import sys
from flows.cli.main import main
ended = main({COMMAND})
slow = [name for name in ("torch", "prefect", "xarray") if name in sys.modules]
print("ended", ended, "imported", slow)
"""


def test_a_command_with_nothing_to_do_imports_no_model_and_no_server(
    root: Location, tmp_path: Path
) -> None:
    """Between them they take longer than everything else that it does."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracking = open_tracking(uri, root)
    note_settled(root, tracking, SUITE, recorded(root, tracking), registered=False)
    asked = {"preset": "smoke", "benchmarks": ["burgers"], "models": ["lsm", "fno"], "seeds": [0]}
    request = {**asked, "precision": None, "compile": False, "runs": uri}
    keep_meaning(root, request_digest(request), ALL)
    environment = {**os.environ, "LSM_STORE": str(tmp_path), "MLFLOW_TRACKING_URI": uri}
    done = subprocess.run(
        [sys.executable, "-c", ANSWERED],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "ended 0 imported []"
    assert "#/experiments/7" in done.stdout


def test_other_sources_mean_other_cells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lsm_core").mkdir()
    (tmp_path / "lsm_core" / "model.py").write_text("width = 1")
    monkeypatch.setattr(settled, "SOURCES", tmp_path)
    before = request_digest({"preset": "smoke"})
    assert request_digest({"preset": "quick"}) != before
    assert request_digest({"preset": "smoke"}) == before
    (tmp_path / "lsm_core" / "model.py").write_text("width = 2")
    assert request_digest({"preset": "smoke"}) != before
