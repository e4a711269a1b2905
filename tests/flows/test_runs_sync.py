"""What dead processes left behind is sent to a real MLflow server."""

import base64
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from flows.services import free_port
from flows.steps.runs_sync import SyncedRun, describe, sync
from storage.location import Location
from storage.run_journal import journals
from storage.run_log import RunLog, Tracking
from tests.storage.test_tracking_outage import MlflowServer, processes, wait_until

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    running = MlflowServer(tmp_path_factory.mktemp("server"), free_port())
    running.start()
    try:
        running.wait_until_it_answers()
        yield running
    finally:
        running.stop()


@pytest.fixture(autouse=True)
def short_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    processes.set_forkserver_preload(["storage.run_log"])


def begin(uri: str, folder: Path, identity: str, n_steps: int = 5) -> RunLog:
    place = Location.parse(str(folder))
    store = Tracking(uri, "sync", place, folder / "journal", patience=0.1)
    run = store.open_run(identity, "a run", {"suite": "sync"})
    for step in range(1, n_steps + 1):
        run.log(step, {"loss": 1 / step})
    return run


def recorded(server: MlflowServer, folder: Path, identity: str) -> tuple[str, list[float]]:
    """Return the state of a run on the server and its values, which stand at steps 1, 2, ..."""
    store = Tracking(server.uri, "sync", Location.parse(str(folder)), folder / "journal")
    (run,) = store.client.search_runs([store.experiment_id], f"tags.identity = '{identity}'")
    found = store.client.get_metric_history(run.info.run_id, "loss")
    assert [metric.step for metric in found] == list(range(1, len(found) + 1))
    return run.info.status, [metric.value for metric in found]


def log_and_die(uri: str, folder: Path, identity: str, is_ended: bool) -> None:
    run = begin(uri, folder, identity)
    if is_ended:
        run.finish()
    os.kill(os.getpid(), 9)


def leave(server: MlflowServer, folder: Path, identity: str, *, is_ended: bool) -> None:
    """Let a process log to the server while it hangs, and kill that process."""
    server.pause()
    child = processes.Process(target=log_and_die, args=(server.uri, folder, identity, is_ended))
    child.start()
    child.join()
    server.resume()
    assert child.exitcode == -9


def test_an_ended_run_of_a_dead_process_is_sent_and_its_journal_removed(
    server: MlflowServer, tmp_path: Path
) -> None:
    leave(server, tmp_path, "ended", is_ended=True)
    (synced,) = sync(tmp_path / "journal")
    assert synced.run_id is not None
    assert synced == SyncedRun(identity="ended", run_id=synced.run_id, sent=7, left=0)
    assert recorded(server, tmp_path, "ended") == ("FINISHED", [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert list((tmp_path / "journal").iterdir()) == []
    assert sync(tmp_path / "journal") == []


def test_a_run_that_was_cut_off_is_sent_and_can_go_on(server: MlflowServer, tmp_path: Path) -> None:
    leave(server, tmp_path, "cut off", is_ended=False)
    (synced,) = sync(tmp_path / "journal")
    assert (synced.sent, synced.left, synced.reason) == (6, 0, "the run has not ended")
    assert recorded(server, tmp_path, "cut off")[0] == "RUNNING"
    (again,) = sync(tmp_path / "journal")
    assert (again.sent, again.left) == (0, 0)
    run = begin(server.uri, tmp_path, "cut off", n_steps=7)
    wait_until(run.is_sent)
    run.finish("KILLED")
    wait_until(run.is_sent)
    status, values = recorded(server, tmp_path, "cut off")
    assert (status, len(values)) == ("KILLED", 7)


def test_of_two_syncs_at_once_one_sends_and_the_other_says_so(
    server: MlflowServer, tmp_path: Path
) -> None:
    leave(server, tmp_path, "two", is_ended=True)
    server.pause()
    receiver, sender = processes.Pipe(duplex=False)
    first = processes.Process(target=sync_and_tell, args=(tmp_path / "journal", sender))
    first.start()
    wait_until(lambda: is_being_sent(tmp_path / "journal"))
    (second,) = sync(tmp_path / "journal")
    assert server.is_paused
    assert (second.sent, second.left) == (0, 7)
    assert second.reason == "another process is sending it"
    server.resume()
    (synced,) = receiver.recv()
    first.join()
    assert (synced.sent, synced.left, synced.reason) == (7, 0, "")
    assert recorded(server, tmp_path, "two")[0] == "FINISHED"


def sync_and_tell(folder: Path, sender: Connection) -> None:
    sender.send(sync(folder))


def is_being_sent(folder: Path) -> bool:
    for journal in journals(folder):
        with journal.sending() as is_ours:
            if not is_ours:
                return True
    return False


def test_syncs_in_many_threads_send_every_step_once(server: MlflowServer, tmp_path: Path) -> None:
    for identity in ("many 1", "many 2", "many 3"):
        begin(NOWHERE, tmp_path, identity).close()
    for path in (tmp_path / "journal").glob("*.jsonl"):
        path.write_text(path.read_text().replace(NOWHERE, server.uri))
    threads = [threading.Thread(target=sync, args=(tmp_path / "journal",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {run.left for run in sync(tmp_path / "journal")} == {0}
    for identity in ("many 1", "many 2", "many 3"):
        assert len(recorded(server, tmp_path, identity)[1]) == 5


def test_a_process_that_lives_sends_its_journal_itself(
    server: MlflowServer, tmp_path: Path
) -> None:
    run = begin(server.uri, tmp_path, "alive")
    wait_until(lambda: run.run_id is not None)
    (synced,) = sync(tmp_path / "journal")
    assert synced.reason == "another process is sending it"
    run.finish()
    wait_until(run.is_sent)
    assert recorded(server, tmp_path, "alive")[0] == "FINISHED"


def test_what_a_store_that_is_away_does_not_take_is_left(tmp_path: Path) -> None:
    for identity in ("first", "second"):
        begin(NOWHERE, tmp_path, identity).finish()
    wait_until(lambda: not is_being_sent(tmp_path / "journal"))
    (tmp_path / "journal" / "torn.jsonl").write_bytes(b'{"version"')
    (tmp_path / "journal" / "odd.jsonl").write_bytes(b'{"version": 99}\n')
    synced = {run.identity: run for run in sync(tmp_path / "journal")}
    for identity in ("first", "second"):
        assert (synced[identity].sent, synced[identity].left) == (0, 7)
        assert NOWHERE in synced[identity].reason
    assert "first line" in synced["odd"].reason
    assert not (tmp_path / "journal" / "torn.jsonl").exists()
    lines = describe(list(synced.values()))
    assert lines[0].startswith("first: 0 sent, 7 left: the tracking store http://127.0.0.1:9")


def test_a_folder_without_journals_holds_nothing(tmp_path: Path) -> None:
    assert sync(tmp_path / "none") == []
    assert describe([]) == ["nothing waits: every run is in its tracking store"]


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str | None]]]:
    """Yield the address of a server that refuses all, and the credentials it was shown."""
    shown: list[str | None] = []

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(self.headers.get("Authorization"))
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refuse)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", shown
    server.shutdown()
    thread.join()
    server.server_close()


def test_credentials_come_from_the_settings_or_the_environment(
    tmp_path: Path, listener: tuple[str, list[str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, shown = listener
    begin(f"http://me:old@{address}", tmp_path, "guarded").finish()
    wait_until(lambda: not is_being_sent(tmp_path / "journal"))
    del shown[:]
    (synced,) = sync(tmp_path / "journal", f"http://me:new@{address}")
    assert synced.left == 7
    assert "new" not in synced.reason
    assert shown[-1] == f"Basic {base64.b64encode(b'me:new').decode()}"
    sync(tmp_path / "journal", f"http://me:new@{address}0")
    assert shown[-1] is None
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "you")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "word")
    sync(tmp_path / "journal")
    assert shown[-1] == f"Basic {base64.b64encode(b'you:word').decode()}"
