"""Whether anything is left to do for a suite, on a real tracking database."""

import json
from pathlib import Path

import pytest
from mlflow.entities import RunTag

from flows.steps.reports.settled import note_settled, settled_results
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
    assert settled_results(root, tracking, SUITE, CELLS) is None
    note_settled(root, tracking, SUITE, results, registered=False)
    assert settled_results(root, tracking, SUITE, CELLS) == results
    assert settled_results(root, tracking, SUITE, CELLS[:1]) == results[:1]
    (more,) = benchmark_cells("smoke", ["burgers"], ["unet"], [0])
    assert settled_results(root, tracking, SUITE, [*CELLS, more]) is None
    # Another tracking store knows nothing of the runs.
    other = open_tracking(f"sqlite:///{tmp_path}/other.db", root)
    assert settled_results(root, other, SUITE, CELLS) is None
    page = root / "reports" / SUITE / "index.html"
    page.remove()
    assert settled_results(root, tracking, SUITE, CELLS) is None
    page.write_bytes(b"page")
    (root / "checkpoints" / CELLS[0].identity / "result.json").remove()
    assert settled_results(root, tracking, SUITE, CELLS) is None


def test_what_mlflow_lacks_is_not_settled(root: Location, tmp_path: Path) -> None:
    tracking = open_tracking(f"sqlite:///{tmp_path}/mlflow.db", root)
    results = recorded(root, tracking, with_files=False)
    note_settled(root, tracking, SUITE, results, registered=False)
    assert settled_results(root, tracking, SUITE, CELLS) is None
    results = recorded(root, tracking)
    note_settled(root, tracking, SUITE, results, registered=True)  # there is no model
    assert settled_results(root, tracking, SUITE, CELLS) is None
