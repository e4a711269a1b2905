"""Runs of the one experiment there was come to that of their problem, and lose nothing."""

from pathlib import Path

import pytest
from mlflow.entities import Metric

from storage.location import Location
from storage.tracking.earlier_runs import earlier_runs, move_run, remove_earlier_experiment
from storage.tracking.store import Tracking, open_tracking
from tests.storage.tracking.records import finished


@pytest.fixture
def tracking(tmp_path: Path) -> Tracking:
    return open_tracking(f"sqlite:///{tmp_path}/mlflow.db", Location.parse(str(tmp_path)))


def earlier_run(tracking: Tracking, identity: str, folder: Path) -> str:
    """Record a run as it was recorded before, with what people added to it."""
    client, number = tracking.client, tracking.at("benchmark").experiment_id
    tags = {"identity": identity, "benchmark": "darcy", "mlflow.note.content": "look at this"}
    run_id: str = client.create_run(number, 5, tags, f"darcy {identity}").info.run_id
    loads = [Metric("system/cpu", 10.0 * step, step, step) for step in (1, 2, 3)]
    client.log_batch(run_id, [*loads, Metric("train/rel_l2", 0.5, 7, 1)])
    client.log_param(run_id, "width", "8")
    (folder / "mine.txt").write_text("a remark")
    client.log_artifact(run_id, str(folder / "mine.txt"))
    client.set_terminated(run_id, "FINISHED", 9)
    return run_id


def test_a_run_that_the_store_has_is_rebuilt_and_gets_what_only_mlflow_had(
    tracking: Tracking, tmp_path: Path
) -> None:
    old = earlier_run(tracking, "known", tmp_path)
    known = finished("known", name="fno seed 0", tags={"model": "fno"}, experiment="pde-darcy")
    (run,) = earlier_runs(tracking)
    move_run(tracking, run, known, "pde-darcy")
    assert earlier_runs(tracking) == []
    there = tracking.at("pde-darcy")
    (moved,) = there.client.search_runs([there.experiment_id])
    assert (moved.info.run_name, moved.data.tags["model"]) == ("fno seed 0", "fno")
    assert moved.data.tags["mlflow.note.content"] == "look at this"
    load = there.client.get_metric_history(moved.info.run_id, "system/cpu")
    assert [point.value for point in load] == [10.0, 20.0, 30.0]
    assert [file.path for file in there.client.list_artifacts(moved.info.run_id)] == ["mine.txt"]
    # Deleted runs can be brought back until `mlflow gc` is called.
    assert tracking.client.get_run(old).info.lifecycle_stage == "deleted"
    assert [remove_earlier_experiment(tracking) for _ in range(2)] == [True, False]


def test_a_run_that_the_store_has_not_is_copied_whole_even_by_two_tries(
    tracking: Tracking, tmp_path: Path
) -> None:
    earlier_run(tracking, "gone", tmp_path)
    (run,) = earlier_runs(tracking)
    for _ in range(2):  # as if the first one had been killed before its end
        move_run(tracking, run, None, "pde-darcy")
        tracking.client.restore_run(run.info.run_id)
    there = tracking.at("pde-darcy")
    (moved,) = there.client.search_runs([there.experiment_id])
    assert (moved.info.status, moved.info.start_time, moved.info.end_time) == ("FINISHED", 5, 9)
    assert moved.data.params == {"width": "8"}
    history = there.client.get_metric_history(moved.info.run_id, "train/rel_l2")
    assert [(point.step, point.value) for point in history] == [(1, 0.5)]
    assert not remove_earlier_experiment(tracking)
