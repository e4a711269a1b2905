"""Files come to finished runs once, on a database and on a real server, at once or later."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.services import free_port
from flows.steps.runs_sync import sync
from storage.errors import StoreUnavailable
from storage.location import Location
from storage.run_files import attach, queue, send_queued
from storage.run_log import Tracking
from tests.storage.mlflow_server import running_server
from tests.storage.test_tracking_outage import MlflowServer


@pytest.fixture(scope="module", params=["database", "server"])
def tracking(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tracking]:
    folder = tmp_path_factory.mktemp(request.param)
    artifacts = Location.parse(str(folder / "artifacts"))
    if request.param == "database":
        yield Tracking(f"sqlite:///{folder}/mlflow.db", "tests", artifacts, folder / "journal")
        return
    with running_server(folder) as uri:
        yield Tracking(uri, "tests", artifacts, folder / "journal")


def record(tracking: Tracking, identity: str) -> None:
    run = tracking.open_run(identity, "a run", {"suite": "tests"})
    run.log(1, {"loss": 1.0})
    run.finish()


def contents(tracking: Tracking, identity: str, folder: Path) -> dict[str, bytes]:
    """Return the files of the one run of an identity, by name."""
    folder.mkdir()
    client = tracking.client
    (run,) = client.search_runs([tracking.experiment_id], f"tags.identity = '{identity}'")
    number = run.info.run_id
    names = [file.path for file in client.list_artifacts(number)]
    return {
        name: Path(client.download_artifacts(number, name, str(folder))).read_bytes()
        for name in names
    }


class Made:
    """Makes contents, and counts how often."""

    def __init__(self) -> None:
        self.n_made = 0

    def __call__(self, content: bytes) -> Callable[[], bytes]:
        def make() -> bytes:
            self.n_made += 1
            return content

        return make


def test_a_file_is_made_and_attached_once_and_the_run_stays_as_it_is(
    tracking: Tracking, tmp_path: Path
) -> None:
    record(tracking, "once")
    number = tracking.experiment_id
    (before,) = tracking.client.search_runs([number], "tags.identity = 'once'")
    made = Made()
    attach(tracking, "once", {"first.json": made(b"{}")})
    for _ in range(2):
        files = {"first.json": made(b"another"), "second.svg": made(b"<svg/>")}
        attach(tracking, "once", files)
    assert made.n_made == 2
    kept = contents(tracking, "once", tmp_path / "files")
    assert kept == {"first.json": b"{}", "second.svg": b"<svg/>"}
    (after,) = tracking.client.search_runs([number], "tags.identity = 'once'")
    assert after.info.end_time == before.info.end_time
    assert after.info.status == "FINISHED"
    assert after.data.metrics == before.data.metrics
    assert not queue(tracking, "once", {"third.svg": made(b"")})
    assert list(tracking.journal.glob("*.jsonl")) == []


def test_a_run_that_the_store_does_not_know_is_not_begun(tracking: Tracking) -> None:
    with pytest.raises(LookupError, match="has no run unknown"):
        attach(tracking, "unknown", {"first.json": bytes})
    found = tracking.client.search_runs([tracking.experiment_id], "tags.identity = 'unknown'")
    assert found == []


def test_no_password_is_said(tmp_path: Path) -> None:
    place = Location.parse(str(tmp_path))
    away = Tracking("http://me:secret@127.0.0.1:9", "tests", place, tmp_path / "journal")
    with pytest.raises(StoreUnavailable) as caught:
        attach(away, "run", {"first.json": bytes})
    assert "secret" not in str(caught.value)


def test_files_of_a_run_that_waits_come_with_it_when_the_server_is_there(tmp_path: Path) -> None:
    server = MlflowServer(tmp_path, free_port())
    place, journal = Location.parse(str(tmp_path)), tmp_path / "journal"
    away = Tracking(server.uri, "tests", place, journal, patience=0.1)
    made = Made()
    for identity in ("next-flow", "synced"):
        record(away, identity)
        for _ in range(2):
            assert queue(away, identity, {"first.json": made(b"{}"), "second.svg": made(b"<svg/>")})
    assert made.n_made == 4
    with pytest.raises(StoreUnavailable):
        send_queued(away, "next-flow")
    for file in journal.glob("*.jsonl"):
        assert sum('"file"' in line for line in file.read_text().splitlines()) == 2
    server.start()
    try:
        server.wait_until_it_answers()
        back = Tracking(server.uri, "tests", place, journal)
        send_queued(back, "next-flow")
        (synced,) = sync(journal)
        assert (synced.identity, synced.left) == ("synced", 0)
        for identity in ("next-flow", "synced"):
            kept = contents(back, identity, tmp_path / identity)
            assert kept == {"first.json": b"{}", "second.svg": b"<svg/>"}
        assert list(journal.glob("*.jsonl")) == []
    finally:
        server.stop()
