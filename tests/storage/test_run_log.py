from pathlib import Path

import pytest

from storage.errors import StoreUnavailable
from storage.location import Location
from storage.run_log import Tracking


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    folder = tmp_path_factory.mktemp("tracking")
    artifacts = Location.parse(str(folder / "artifacts"))
    return Tracking(f"sqlite:///{folder}/mlflow.db", "tests", artifacts)


def steps(tracking: Tracking, run_id: str, name: str) -> list[tuple[int, float]]:
    history = tracking.client.get_metric_history(run_id, name)
    return [(metric.step, metric.value) for metric in history]


def test_metrics_wait_until_they_are_sent(tracking: Tracking) -> None:
    run = tracking.open_run("waiting", "a run", {"suite": "tests"})
    for step in range(1, 4):
        run.log(step, {"train/rel_l2": 1 / step})
    assert steps(tracking, run.run_id, "train/rel_l2") == []
    run.flush()
    assert steps(tracking, run.run_id, "train/rel_l2") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    run.finish()
    assert tracking.client.get_run(run.run_id).info.status == "FINISHED"


def test_a_resumed_run_is_the_same_and_repeats_no_step(tracking: Tracking) -> None:
    first = tracking.open_run("resumed", "a run", {})
    for step in (1, 2, 3):
        first.log(step, {"loss": float(step)})
    first.flush()
    second = tracking.open_run("resumed", "a run", {})
    assert second.run_id == first.run_id
    for step in (2, 3, 4):
        second.log(step, {"loss": float(step)})
    second.finish()
    assert steps(tracking, first.run_id, "loss") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]


def test_more_metrics_than_one_batch_takes_all_arrive(tracking: Tracking) -> None:
    run = tracking.open_run("many", "a run", {})
    for step in range(1200):
        run.log(step, {"loss": float(step)})
    run.finish()
    assert [step for step, _ in steps(tracking, run.run_id, "loss")] == list(range(1200))


def test_files_and_settings_lie_with_the_run(tracking: Tracking, tmp_path: Path) -> None:
    run = tracking.open_run("files", "a run", {"model": "lsm"})
    run.set_parameters({"training.epochs": 3, "model.widths": (1, 2)})
    run.set_parameters({"training.epochs": 3})
    run.add_file("figures/curve.svg", b"<svg/>")
    kept = tracking.client.get_run(run.run_id)
    assert kept.data.params == {"training.epochs": "3", "model.widths": "(1, 2)"}
    assert kept.data.tags["model"] == "lsm"
    copy = tracking.client.download_artifacts(run.run_id, "figures/curve.svg", str(tmp_path))
    assert Path(copy).read_bytes() == b"<svg/>"


def test_a_tracking_store_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"this is not a database, and never was one" * 50)
    with pytest.raises(StoreUnavailable, match="MLFLOW_TRACKING_URI"):
        Tracking(f"sqlite:///{tmp_path}/mlflow.db", "tests", Location.parse(str(tmp_path)))


def test_a_run_ends_in_a_known_state(tracking: Tracking) -> None:
    run = tracking.open_run("ending", "a run", {})
    with pytest.raises(ValueError, match="ends as one of"):
        run.finish("DONE")
