"""Runs in a real tracking database: sent once, whatever happens between."""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from storage.location import Location
from storage.tracking import echo
from storage.tracking.echo import Echo, send, send_within_patience
from storage.tracking.store import Tracking
from tests.storage.tracking.records import BEGAN, expected, finished, points, record, steps

NOWHERE = "http://somebody:secret@127.0.0.1:9"


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    folder = tmp_path_factory.mktemp("tracking")
    place = Location.parse(str(folder / "artifacts"))
    return Tracking(f"sqlite:///{folder}/mlflow.db", "tests", place)


def away(folder: Path) -> Tracking:
    """Return a server that does not answer."""
    return Tracking(NOWHERE, "tests", Location.parse(str(folder)), patience=0.2)


def run_of(tracking: Tracking, identity: str) -> Any:
    (run,) = tracking.client.search_runs([tracking.experiment_id], f"tags.identity = '{identity}'")
    return run


def wait_until_sent(sender: Echo) -> None:
    deadline = time.monotonic() + 60
    while not sender.is_sent():
        assert time.monotonic() < deadline, "it was not sent"
        time.sleep(0.01)


def test_all_of_a_record_arrives_with_the_times_it_has(tracking: Tracking, tmp_path: Path) -> None:
    tags, parameters = {"suite": "tests"}, {"epochs": "3", "widths": "[1, 2]"}
    files = {"curve.svg": lambda: b"<svg/>"}
    wanted = finished("whole", 3, tags=tags, parameters=parameters, files=files)
    sent = send(tracking, wanted)
    assert (sent.is_new, sent.n_points, sent.n_files) == (True, 3, 1)
    run = run_of(tracking, "whole")
    assert steps(tracking, "whole") == expected(3)
    assert (run.info.start_time, run.info.end_time) == (BEGAN, BEGAN + 10**6)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "a run")
    assert run.data.params == parameters
    assert run.data.tags["suite"] == "tests"
    first, *_ = tracking.client.get_metric_history(run.info.run_id, "loss")
    assert first.timestamp == BEGAN + 1000
    copy = tracking.client.download_artifacts(run.info.run_id, "curve.svg", str(tmp_path))
    assert Path(copy).read_bytes() == b"<svg/>"


def test_what_is_there_is_not_sent_again(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    files = {"curve.svg": lambda: made.append(1) or b"<svg/>"}
    wanted = finished("again", 3, tags={"suite": "tests"}, parameters={"a": "1"}, files=files)
    send(tracking, wanted)
    for name in ("log_batch", "log_artifact", "set_tag", "create_run", "set_terminated"):
        monkeypatch.delattr(MlflowClient, name)
    assert not send(tracking, wanted).anything
    assert made == [1]


def test_files_of_another_version_take_the_place_of_those_before(
    tracking: Tracking, tmp_path: Path
) -> None:
    for text in ("old", "new"):
        files = {"page": text.encode}
        send(tracking, finished("replaced", files=files, files_version=text))
    run_id = run_of(tracking, "replaced").info.run_id
    copy = tracking.client.download_artifacts(run_id, "page", str(tmp_path))
    assert Path(copy).read_text() == "new"


def test_files_whose_upload_was_cut_off_are_sent_again(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = {name: name.encode for name in ("first", "second")}

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "set_tag", dies)
        with pytest.raises(KeyboardInterrupt):
            send(tracking, finished("torn", files=files))
    assert send(tracking, finished("torn", files=files)).n_files == 2


def test_a_clean_end_leaves_no_thread(tracking: Tracking) -> None:
    sender = Echo(tracking)
    sender.update(record("threads"))
    assert any(thread.name == "echo threads" for thread in threading.enumerate())
    assert sender.finish(finished("threads"))
    assert not any(thread.name == "echo threads" for thread in threading.enumerate())


def test_a_resumed_run_is_the_same_and_repeats_no_step(tracking: Tracking) -> None:
    first, second = Echo(tracking), Echo(tracking)
    first.update(record("resumed", 3))
    wait_until_sent(first)
    second.update(record("resumed", 2))
    assert second.finish(finished("resumed", 4))
    first.close()
    assert steps(tracking, "resumed") == expected(4)


def test_a_run_that_failed_and_goes_on_runs_again(tracking: Tracking) -> None:
    send(tracking, record("failed", 1, status="FAILED", ended=BEGAN + 5))
    assert run_of(tracking, "failed").info.status == "FAILED"
    send(tracking, record("failed", 1))
    assert run_of(tracking, "failed").info.status == "RUNNING"
    send(tracking, record("failed", 2, status=None))
    assert run_of(tracking, "failed").info.status == "RUNNING"


def test_senders_at_once_make_one_run_with_every_step_once(tracking: Tracking) -> None:
    assert tracking.experiment_id
    all_ready = threading.Barrier(4)

    def send_all() -> None:
        own = Tracking(tracking.uri, tracking.experiment, tracking.artifacts, patience=60)
        assert own.experiment_id
        all_ready.wait()
        assert send_within_patience(own, finished("raced", 300))

    senders = [threading.Thread(target=send_all) for _ in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    send(tracking, finished("raced", 300))  # where twins were removed, whoever comes next fills up
    assert steps(tracking, "raced") == expected(300)


def test_two_that_train_the_same_run_at_other_times_send_every_step_once(
    tracking: Tracking,
) -> None:
    assert tracking.experiment_id
    all_ready = threading.Barrier(4)

    def send_own(late: int) -> None:
        own = Tracking(tracking.uri, tracking.experiment, tracking.artifacts, patience=60)
        assert own.experiment_id
        measured = [Metric("loss", p.value, p.timestamp + late, p.step) for p in points(300)]
        all_ready.wait()
        assert send_within_patience(own, finished("twice trained", points=measured))

    senders = [threading.Thread(target=send_own, args=(late,)) for late in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert steps(tracking, "twice trained") == expected(300)


def test_more_metrics_than_one_request_takes_all_arrive(tracking: Tracking) -> None:
    both = [*points(1200), *points(1200, "other")]
    send(tracking, finished("many", points=both))
    assert steps(tracking, "many") == expected(1200)
    assert steps(tracking, "many", "other") == expected(1200)


def test_metrics_that_are_no_numbers_arrive_too(tracking: Tracking) -> None:
    odd = [Metric("loss", float("nan"), BEGAN, 1), Metric("loss", float("inf"), BEGAN + 1, 2)]
    send(tracking, record("diverged", points=odd, status="FAILED", ended=BEGAN))
    (first, second) = steps(tracking, "diverged")
    assert str(first) == "(1, nan)"
    assert second[1] > 1e308


def test_what_the_store_refuses_holds_up_nothing(
    tracking: Tracking, caplog: pytest.LogCaptureFixture
) -> None:
    some = points(4)
    some.insert(2, Metric("no%name", 1.0, BEGAN, 1))
    send(tracking, finished("refused", points=some, parameters={"epochs": "3"}))
    send(
        tracking, finished("refused", 5, parameters={"epochs": "4"})
    )  # MLflow changes no parameter
    assert steps(tracking, "refused") == expected(5)
    run = run_of(tracking, "refused")
    assert (run.data.params, run.info.status) == ({"epochs": "3"}, "FINISHED")
    assert len([line for line in caplog.messages if "refuses a part" in line]) == 1


def test_a_run_deleted_in_the_store_is_begun_anew_with_all_of_it(tracking: Tracking) -> None:
    sender = Echo(tracking)
    sender.update(record("deleted", 1))
    wait_until_sent(sender)
    deleted = run_of(tracking, "deleted").info.run_id
    tracking.client.delete_run(deleted)
    assert sender.finish(finished("deleted", 2))
    assert steps(tracking, "deleted") == expected(2)
    assert run_of(tracking, "deleted").info.run_id != deleted


def test_a_store_that_is_away_is_not_waited_for_and_no_password_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Echo(away(tmp_path))
    sender.update(record("alone", 1))
    assert not sender.finish(finished("alone", 2))
    assert sender.run_id is None
    assert "lsm runs sync" in caplog.messages[-1]
    assert "secret" not in caplog.text


def test_a_database_locked_by_another_writer_is_waited_for_by_nobody(tracking: Tracking) -> None:
    assert tracking.experiment_id
    hasty = Tracking(tracking.uri, tracking.experiment, tracking.artifacts, patience=0.2)
    other = sqlite3.connect(tracking.uri.removeprefix("sqlite:///"), isolation_level=None)
    with closing(other):
        other.execute("BEGIN EXCLUSIVE")
        sender = Echo(hasty)
        sender.update(record("locked", 1))
        assert not sender.finish(finished("locked", 1))
        assert other.in_transaction  # all of the above returned while nothing could be written
        other.execute("ROLLBACK")
    assert send_within_patience(tracking, finished("locked", 2))
    # Its last request went on by itself, and may have begun a twin that is being removed just now.
    for thread in threading.enumerate():
        if thread.name == "echo locked":
            thread.join(timeout=60)
    send(tracking, finished("locked", 2))
    assert steps(tracking, "locked") == expected(2)


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
        monkeypatch.setattr(echo, "SHORTEST_PAUSE", 0.01)

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


def test_points_whose_answer_got_lost_are_not_sent_again(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    faults.lost_answers = 1
    sender = Echo(tracking)
    sender.update(record("unanswered", 2))
    wait_until_sent(sender)
    assert sender.finish(finished("unanswered", 3))
    assert [batch for batch in faults.sent if batch] == [[1, 2], [3]]
    assert faults.lost_answers == 0
    assert steps(tracking, "unanswered") == expected(3)


def test_a_run_that_an_unanswered_call_began_is_removed(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    faults.late_calls = 1
    assert send_within_patience(tracking, finished("twin", 1))
    assert faults.late_calls == 0
    assert steps(tracking, "twin") == expected(1)


def test_the_load_of_the_machine_is_recorded_also_of_the_shortest_run(tracking: Tracking) -> None:
    for n_steps in (1, 2):
        sender = Echo(tracking, load=True)
        sender.update(record("load", n_steps))
        wait_until_sent(sender)
        sender.finish(finished("load", n_steps))
    run = run_of(tracking, "load")
    assert 0 <= run.data.metrics["system/cpu_utilization_percentage"] <= 100
    name = "system/system_memory_usage_megabytes"
    memory = tracking.client.get_metric_history(run.info.run_id, name)
    assert [sample.step for sample in memory] == [0, 1]
    assert all(sample.value > 10 for sample in memory)


def test_a_machine_that_does_not_tell_its_load_costs_a_line(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import mlflow.system_metrics.system_metrics_monitor as monitor

    def refuse() -> None:
        raise OSError("not told")

    monkeypatch.setattr(monitor, "CPUMonitor", refuse)
    sender = Echo(tracking, load=True)
    sender.update(record("silent", 1))
    wait_until_sent(sender)
    assert sender.finish(finished("silent", 2))
    assert "load of this machine is not recorded: not told" in caplog.text


class EightGpus:
    """Stands in for NVML, which is part of a driver: eight GPUs, and who was looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looked_at: set[str] = set()
        answers: dict[str, Any] = {
            "Init": lambda: None,
            "DeviceGetCount": lambda: 8,
            "DeviceGetHandleByIndex": lambda number: f"GPU-{number}",
            "DeviceGetHandleByUUID": lambda uuid: uuid,
            "DeviceGetMemoryInfo": self.memory,
            "DeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=87),
            "DeviceGetPowerUsage": lambda _: 200_000,
            "DeviceGetEnforcedPowerLimit": lambda _: 400_000,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(f"pynvml.nvml{name}", answer)

    def memory(self, gpu: str) -> SimpleNamespace:
        self.looked_at.add(gpu)
        return SimpleNamespace(used=10**9, total=8 * 10**9)


@pytest.mark.parametrize("own", [["GPU-5"], []])
def test_the_load_of_a_run_is_that_of_its_own_gpu_alone(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch, own: list[str]
) -> None:
    gpus, name = EightGpus(monkeypatch), f"on {len(own)} GPUs"
    sender = Echo(tracking, load=True, gpus=own)
    sender.update(record(name, 1))
    wait_until_sent(sender)
    sender.finish(finished(name, 1))
    assert gpus.looked_at == set(own)
    recorded = {k: v for k, v in run_of(tracking, name).data.metrics.items() if "gpu_" in k}
    assert recorded.get("system/gpu_0_utilization_percentage") == (87 if own else None)
    assert not any(k.startswith("system/gpu_1") for k in recorded)
