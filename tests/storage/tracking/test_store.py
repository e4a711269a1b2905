import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from storage.errors import StoreUnavailable
from storage.location import Location
from storage.tracking.echo import send
from storage.tracking.store import Tracking
from tests.storage.tracking.records import expected, finished, steps


@pytest.mark.parametrize("uri", ["gopher://somewhere", "http://", "postgresql+nodriver://a/b"])
def test_an_address_that_cannot_be_one_is_said_at_once(uri: str, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="MLFLOW_TRACKING_URI"):
        Tracking(uri, "tests", Location.parse(str(tmp_path)))


def test_a_tracking_store_that_is_none_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"this is not a database, and never was one" * 50)
    uri, place = f"sqlite:///{tmp_path}/mlflow.db", Location.parse(str(tmp_path))
    with pytest.raises(StoreUnavailable, match="MLFLOW_TRACKING_URI"):
        Tracking(uri, "tests", place)


def test_asking_whether_a_database_is_one_leaves_its_locks_alone(tmp_path: Path) -> None:
    # A file that is opened and closed beside sqlite loses the locks of its process.
    begin = "sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    database = tmp_path / "mlflow.db"
    command = [sys.executable, "-c", f"import sqlite3, sys; {begin}", str(database)]
    with closing(sqlite3.connect(database, isolation_level=None)) as own:
        own.execute("CREATE TABLE runs (name)")
        own.execute("BEGIN IMMEDIATE")
        Tracking(f"sqlite:///{database}", "tests", Location.parse(str(tmp_path)))
        other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "database is locked" in other.stderr


def test_a_busy_database_is_one(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as own:
        own.execute("CREATE TABLE runs (name)")
        own.execute("BEGIN EXCLUSIVE")
        Tracking(f"sqlite:///{database}", "tests", Location.parse(str(tmp_path)))


def test_no_password_is_said_nor_in_the_cause(tmp_path: Path) -> None:
    away = Tracking("http://me:secret@127.0.0.1:9", "tests", Location.parse(str(tmp_path)))
    with pytest.raises(StoreUnavailable, match=r"http://127\.0\.0\.1:9 cannot") as raised:
        _ = away.experiment_id
    assert "secret" not in str(raised.value)
    assert "secret" not in str(raised.value.__cause__)


def test_a_database_whose_maker_was_killed_is_made_anew(tmp_path: Path) -> None:
    # What a kill leaves: the new database is not finished, the real one is not there.
    (tmp_path / "mlflow.db.new").write_bytes(b"SQLite format 3\0 and then nothing")
    made = Tracking(f"sqlite:///{tmp_path}/mlflow.db", "tests", Location.parse(str(tmp_path)))
    send(made, finished("after a kill", 1))
    assert steps(made, "after a kill") == expected(1)
    assert not list(tmp_path.glob("*.new*"))


def test_a_database_that_another_has_replaced_is_asked_for_its_numbers_anew(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    tracking = Tracking(f"sqlite:///{database}", "tests", Location.parse(str(tmp_path)))
    send(tracking, finished("first", 1))
    tracking.__dict__["experiment_id"] = "77"  # as if the database were another one now
    with pytest.raises(StoreUnavailable):
        send(tracking, finished("second", 1))
    send(tracking, finished("second", 1))
    assert steps(tracking, "second") == expected(1)
