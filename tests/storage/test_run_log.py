import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from storage import run_delivery, run_log
from storage.errors import StoreUnavailable
from storage.location import Location
from storage.run_log import RunLog, Tracking

NOWHERE = "http://somebody:secret@127.0.0.1:9"


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    folder = tmp_path_factory.mktemp("tracking")
    artifacts = Location.parse(str(folder / "artifacts"))
    return Tracking(f"sqlite:///{folder}/mlflow.db", "tests", artifacts, folder / "journal")


def away(folder: Path) -> Tracking:
    """Return a server that does not answer."""
    return Tracking(NOWHERE, "tests", Location.parse(str(folder)), folder / "journal", patience=0.2)


def run_of(tracking: Tracking, identity: str) -> str:
    (run,) = tracking.client.search_runs([tracking.experiment_id], f"tags.identity = '{identity}'")
    return str(run.info.run_id)


def steps(tracking: Tracking, identity: str, name: str) -> list[tuple[int, float]]:
    history = tracking.client.get_metric_history(run_of(tracking, identity), name)
    return [(metric.step, metric.value) for metric in history]


def left(tracking: Tracking) -> list[str]:
    return sorted(p.name for p in tracking.journal.iterdir() if p.name != "database.lock")


def test_metrics_arrive_and_the_journal_goes(tracking: Tracking) -> None:
    run = tracking.open_run("arriving", "a run", {"suite": "tests"})
    for step in range(1, 4):
        run.log(step, {"train/rel_l2": 1 / step})
    run.flush()
    run.finish()
    assert steps(tracking, "arriving", "train/rel_l2") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    kept = tracking.client.get_run(run_of(tracking, "arriving"))
    assert kept.info.status == "FINISHED"
    assert kept.info.run_name == "a run"
    assert kept.data.tags["suite"] == "tests"
    assert left(tracking) == []


def test_a_clean_end_leaves_no_thread(tracking: Tracking) -> None:
    run = tracking.open_run("threads", "a run", {})
    assert any(thread.name.startswith("send threads") for thread in threading.enumerate())
    run.finish()
    assert not any(thread.name.startswith("send threads") for thread in threading.enumerate())


def test_a_resumed_run_is_the_same_and_repeats_no_step(tracking: Tracking) -> None:
    first = tracking.open_run("resumed", "a run", {})
    for step in (1, 2, 3):
        first.log(step, {"loss": float(step)})
    first.flush()
    # The first one still holds the right to send; what the second adds goes through it.
    second = tracking.open_run("resumed", "a run", {})
    for step in (2, 3, 4):
        second.log(step, {"loss": -float(step)})
    second.finish()
    assert steps(tracking, "resumed", "loss") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, -4.0)]


def test_a_finished_run_that_is_opened_again_repeats_no_step(tracking: Tracking) -> None:
    for last in (3, 5):
        run = tracking.open_run("again", "a run", {})
        for step in range(last):
            run.log(step, {"loss": float(step)})
        run.finish("FINISHED" if last == 5 else "FAILED")
    assert [step for step, _ in steps(tracking, "again", "loss")] == list(range(5))
    assert tracking.client.get_run(run_of(tracking, "again")).info.status == "FINISHED"


def test_what_several_threads_log_at_once_all_arrives(tracking: Tracking) -> None:
    run = tracking.open_run("threaded", "a run", {})

    def log_all(name: str) -> None:
        for step in range(300):
            run.log(step, {name: 1.0})

    loggers = [threading.Thread(target=log_all, args=(name,)) for name in ("one", "two", "three")]
    for logger in loggers:
        logger.start()
    for logger in loggers:
        logger.join()
    run.finish()
    for name in ("one", "two", "three"):
        assert [step for step, _ in steps(tracking, "threaded", name)] == list(range(300))


def test_more_metrics_than_one_batch_takes_all_arrive(tracking: Tracking) -> None:
    run = tracking.open_run("many", "a run", {})
    for step in range(1200):
        run.log(step, {"loss": float(step), "half": step / 2})
    run.finish()
    assert steps(tracking, "many", "loss") == [(step, float(step)) for step in range(1200)]
    assert steps(tracking, "many", "half") == [(step, step / 2) for step in range(1200)]


def test_files_and_settings_lie_with_the_run(tracking: Tracking, tmp_path: Path) -> None:
    run = tracking.open_run("files", "a run", {"model": "lsm"})
    run.set_parameters({"training.epochs": 3, "model.widths": (1, 2)})
    run.set_parameters({"training.epochs": 3})
    run.set_tags({"suite": "tests"})
    run.add_file("figures/curve.svg", b"<svg/>")
    run.finish()
    kept = tracking.client.get_run(run_of(tracking, "files"))
    assert kept.data.params == {"training.epochs": "3", "model.widths": "(1, 2)"}
    assert kept.data.tags["model"] == "lsm"
    assert kept.data.tags["suite"] == "tests"
    copy = tracking.client.download_artifacts(kept.info.run_id, "figures/curve.svg", str(tmp_path))
    assert Path(copy).read_bytes() == b"<svg/>"
    assert left(tracking) == []


def test_metrics_that_are_no_numbers_arrive_too(tracking: Tracking) -> None:
    run = tracking.open_run("diverged", "a run", {})
    run.log(1, {"loss": float("nan")})
    run.log(2, {"loss": float("inf")})
    run.finish("FAILED")
    (first, second) = steps(tracking, "diverged", "loss")
    assert str(first) == "(1, nan)"
    assert second[1] > 1e308


def test_metrics_have_the_time_when_they_were_logged(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(5000, 9000, 1000))
    monkeypatch.setattr(run_log, "_now", lambda: next(times))
    run = tracking.open_run("times", "a run", {})  # takes two: of the heading and of the state
    run.log(1, {"loss": 1.0})
    run.finish()
    run_id = run_of(tracking, "times")
    (metric,) = tracking.client.get_metric_history(run_id, "loss")
    assert metric.timestamp == 7000
    info = tracking.client.get_run(run_id).info
    assert (info.start_time, info.end_time) == (5000, 8000)


def test_what_the_store_refuses_holds_up_nothing_and_is_kept(
    tracking: Tracking, caplog: pytest.LogCaptureFixture
) -> None:
    run = tracking.open_run("refused", "a run", {})
    run.set_parameters({"epochs": 3})
    run.set_parameters({"epochs": 4})  # MLflow does not change a parameter
    for step in range(5):
        run.log(step, {"loss": float(step)} if step != 2 else {"no%name": 1.0})
    run.finish()
    assert [step for step, _ in steps(tracking, "refused", "loss")] == [0, 1, 3, 4]
    kept = tracking.client.get_run(run_of(tracking, "refused"))
    assert kept.data.params == {"epochs": "3"}
    assert kept.info.status == "FINISHED"
    assert len([line for line in caplog.messages if "refuses a line" in line]) == 2
    (file,) = tracking.journal.glob("refused-*.refused")
    assert '{"no%name": 1.0}' in file.read_text()
    file.unlink()


def test_a_run_deleted_in_the_store_is_begun_anew_with_all_of_the_journal(
    tracking: Tracking,
) -> None:
    run = tracking.open_run("deleted", "a run", {})
    run.log(1, {"loss": 1.0})
    run.flush()
    wait_until_sent(run)
    deleted = run.run_id
    assert deleted is not None
    tracking.client.delete_run(deleted)
    run.log(2, {"loss": 2.0})
    run.finish()
    assert steps(tracking, "deleted", "loss") == [(1, 1.0), (2, 2.0)]
    assert run_of(tracking, "deleted") != deleted


def test_a_store_that_is_away_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = away(tmp_path).open_run("alone", "a run", {})
    run.set_parameters({"epochs": 3})
    run.log(1, {"loss": 1.0})
    run.flush()
    run.add_file("curve.svg", b"<svg/>")
    run.finish()
    assert run.run_id is None
    assert "lsm runs sync" in caplog.messages[-1]
    (file,) = (tmp_path / "journal").glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [next(iter(line)) for line in lines] == [
        *("version", "status", "parameters", "step", "file", "status"),
    ]


def test_no_password_is_written_or_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracking = away(tmp_path)
    run = tracking.open_run("secretive", "a run", {})
    run.finish()
    with pytest.raises(StoreUnavailable, match=r"http://127\.0\.0\.1:9 cannot") as raised:
        _ = tracking.experiment_id
    (file,) = (tmp_path / "journal").glob("*.jsonl")
    assert json.loads(file.read_text().splitlines()[0])["uri"] == "http://127.0.0.1:9"
    assert raised.value.__cause__ is None
    for text in (file.read_text(), caplog.text, str(raised.value)):
        assert "secret@" not in text
    assert file.stat().st_mode & 0o077 == 0


def test_a_database_locked_by_another_writer_is_waited_for_by_nobody(tracking: Tracking) -> None:
    _ = tracking.experiment_id
    hasty = Tracking(
        tracking.uri, tracking.experiment, tracking.artifacts, tracking.journal, patience=0.2
    )
    other = sqlite3.connect(tracking.uri.removeprefix("sqlite:///"), isolation_level=None)
    with closing(other):
        other.execute("BEGIN EXCLUSIVE")
        run = hasty.open_run("locked", "a run", {})
        run.log(1, {"loss": 1.0})
        run.flush()
        run.finish()
        assert other.in_transaction  # all of the above returned while nothing could be written
        other.execute("ROLLBACK")
    run = tracking.open_run("locked", "a run", {})
    run.log(2, {"loss": 2.0})
    run.finish()
    assert steps(tracking, "locked", "loss") == [(1, 1.0), (2, 2.0)]


class Faults:
    """MLflow's client, some of whose calls are carried out but have no answer, or late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[list[int]] = []
        self.lost_answers = 0
        self.late_calls = 0
        self._is_under_way = False
        self._log_batch, self._create_run = MlflowClient.log_batch, MlflowClient.create_run

        # Functions become methods of the client; methods of this object would not.
        def log_batch(client: MlflowClient, *arguments: Any, **content: Any) -> None:
            self._lose_answer(client, *arguments, **content)

        def create_run(client: MlflowClient, *arguments: Any, **content: Any) -> Any:
            return self._come_late(client, *arguments, **content)

        monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
        monkeypatch.setattr(MlflowClient, "create_run", create_run)
        monkeypatch.setattr(run_delivery, "SHORTEST_PAUSE", 0.01)

    def _lose_answer(self, client: MlflowClient, run_id: str, **content: Any) -> None:
        self._log_batch(client, run_id, **content)
        self.sent.append([metric.step for metric in content.get("metrics", ())])
        if self.lost_answers:
            self.lost_answers -= 1
            raise MlflowException("timed out")

    def _come_late(self, client: MlflowClient, *arguments: Any, **content: Any) -> Any:
        if self.late_calls and not self._is_under_way:
            self._is_under_way = True
            raise MlflowException("timed out")
        if self._is_under_way:
            self._create_run(client, *arguments, **content)  # the call that was given up
            self._is_under_way, self.late_calls = False, self.late_calls - 1
        return self._create_run(client, *arguments, **content)


def test_a_batch_whose_answer_got_lost_is_not_sent_again(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    faults.lost_answers = 1
    run = tracking.open_run("unanswered", "a run", {})
    wait_until_sent(run)
    run.log(1, {"loss": 1.0})
    run.log(2, {"loss": 2.0})
    run.flush()
    wait_until_sent(run)
    run.log(3, {"loss": 3.0})
    run.finish()
    assert [batch for batch in faults.sent if batch] == [[1, 2], [3]]
    assert faults.lost_answers == 0
    assert steps(tracking, "unanswered", "loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_a_run_that_an_unanswered_call_began_is_removed(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    faults.late_calls = 1
    run = tracking.open_run("twin", "a run", {})
    run.log(1, {"loss": 1.0})
    run.finish()
    assert faults.late_calls == 0
    assert steps(tracking, "twin", "loss") == [(1, 1.0)]


def wait_until_sent(run: RunLog) -> None:
    deadline = time.monotonic() + 60
    while not run.is_sent():
        assert time.monotonic() < deadline, "it was not sent"
        time.sleep(0.01)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    is_full, write = threading.Event(), os.write

    def write_or_fail(descriptor: int, content: bytes) -> int:
        if is_full.is_set() and threading.current_thread() is threading.main_thread():
            if len(content) > 10:
                return write(descriptor, content[:10])
            raise OSError(28, "No space left on device")
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", write_or_fail)
    yield is_full
    is_full.clear()


def test_a_full_disk_does_not_stop_the_run_and_loses_nothing(
    tracking: Tracking, full_disk: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    run = tracking.open_run("full", "a run", {})
    run.log(1, {"loss": 1.0})
    full_disk.set()
    with caplog.at_level(logging.WARNING):
        run.log(2, {"loss": 2.0})
    assert "No space left" in caplog.text
    assert not run.is_sent()
    full_disk.clear()
    run.flush()
    wait_until_sent(run)
    run.log(3, {"loss": 3.0})
    run.finish()
    assert steps(tracking, "full", "loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]


@pytest.mark.parametrize("uri", ["gopher://somewhere", "http://", "postgresql+nodriver://a/b"])
def test_an_address_that_cannot_be_one_is_said_at_once(uri: str, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="MLFLOW_TRACKING_URI"):
        Tracking(uri, "tests", Location.parse(str(tmp_path)), tmp_path / "journal")


def test_a_tracking_store_that_is_none_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"this is not a database, and never was one" * 50)
    uri, place = f"sqlite:///{tmp_path}/mlflow.db", Location.parse(str(tmp_path))
    with pytest.raises(StoreUnavailable, match="MLFLOW_TRACKING_URI"):
        Tracking(uri, "tests", place, tmp_path / "journal")


def test_a_journal_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("a file where a folder is needed")
    with pytest.raises(StoreUnavailable, match="journal"):
        away(tmp_path).open_run("nowhere", "a run", {})


def test_a_run_ends_in_a_known_state(tracking: Tracking) -> None:
    run = tracking.open_run("ending", "a run", {})
    with pytest.raises(ValueError, match="ends as one of"):
        run.finish("DONE")
    run.finish("KILLED")
    assert tracking.client.get_run(run_of(tracking, "ending")).info.status == "KILLED"


def test_a_database_whose_maker_was_killed_is_made_anew(tmp_path: Path) -> None:
    # What a kill leaves: the new database is not finished, the real one is not there.
    (tmp_path / "mlflow.db.new").write_bytes(b"SQLite format 3\0 and then nothing")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    made = Tracking(uri, "tests", Location.parse(str(tmp_path)), tmp_path / "journal")
    run = made.open_run("after a kill", "a run", {})
    run.log(1, {"loss": 1.0})
    run.finish()
    assert steps(made, "after a kill", "loss") == [(1, 1.0)]
    assert not list(tmp_path.glob("*.new*"))
