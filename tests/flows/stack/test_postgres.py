"""The stack's own PostgreSQL server, and the settings that choose a database."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from sqlalchemy import make_url

from flows.errors import BadInput
from flows.settings import Settings
from flows.stack import postgres
from flows.stack.services import start_service, stop_process

# Servers outlive whoever started them, which Python warns of.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that every user can reach, unlike those of pytest."""
    made = Path(tempfile.mkdtemp(prefix="lsm-"))
    made.chmod(0o755)
    yield made / "postgres"
    shutil.rmtree(made)


def test_a_killed_server_has_what_it_was_told_when_it_is_started_again(folder: Path) -> None:
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed, so the stack's own server was not tried")
    psycopg2 = pytest.importorskip("psycopg2")
    command = ["flows.stack.postgres", str(folder)]
    log = folder.parent / "log"
    for start in range(2):
        server = psutil.Process(start_service(command, log, os.environ).pid)
        try:
            postgres.make_databases(folder)
            with psycopg2.connect(host=str(folder), user="postgres", dbname="mlflow") as connection:
                cursor = connection.cursor()
                if start == 0:
                    cursor.execute("create table kept (number integer)")
                    cursor.execute("insert into kept values (7)")
                else:
                    cursor.execute("select number from kept")
                    assert cursor.fetchall() == [(7,)]
            connection.close()
            if start == 0:
                os.kill(server.pid, signal.SIGKILL)
                server.wait(30)
                _wait_for_the_last_child(folder)
        finally:
            stop_process(server)
    assert not (folder / postgres.SOCKET).exists()


def _wait_for_the_last_child(folder: Path) -> None:
    """Wait until the children of a killed server have noticed and ended."""
    deadline = time.monotonic() + 30
    while any(str(folder) in " ".join(each.info["cmdline"] or ()) for each in _processes()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _processes() -> list[psutil.Process]:
    return list(psutil.process_iter(["cmdline"]))


def test_a_folder_too_long_for_a_socket_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(postgres, "programs", lambda: tmp_path)
    with pytest.raises(BadInput, match="too long for a socket in it, by 40 characters"):
        postgres.require_postgres(Path("/" + "f" * (107 + 40 - len("//.s.PGSQL.5432"))))


def test_a_machine_without_postgresql_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "programs", lambda: None)
    with pytest.raises(BadInput, match="PostgreSQL is not installed here; install it"):
        postgres.require_postgres(Path("/srv/postgres"))


@pytest.mark.parametrize(
    ("database", "expected"),
    [
        ("local", "postgresql+psycopg2://postgres@/mlflow?host=/srv/lsm/postgres"),
        ("postgresql://me:secret@db:5432", "postgresql+psycopg2://me:secret@db:5432/mlflow"),
    ],
)
def test_runs_are_recorded_in_the_database_that_was_chosen(
    monkeypatch: pytest.MonkeyPatch, database: str, expected: str
) -> None:
    monkeypatch.setenv("LSM_STORE", "/srv/lsm")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("LSM_DATABASE", database)
    assert Settings.from_environment().tracking_uri == expected


@pytest.mark.parametrize("password", ["p/w0rd", "p#w0rd", "p?w0rd", "p@w0rd", "p[w0rd"])
def test_a_password_that_tears_the_address_is_to_be_encoded(
    monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    monkeypatch.setenv("LSM_DATABASE", f"postgresql://me:{password}@db:5432")
    with pytest.raises(BadInput, match="percent-encoded, as %2F") as refused:
        Settings.from_environment()
    assert "w0rd" not in str(refused.value)
    monkeypatch.setenv("LSM_DATABASE", f"postgresql://me:{quote(password, safe='')}@db:5432")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    url = make_url(Settings.from_environment().tracking_uri)
    assert (url.password, url.host, url.port) == (password, "db", 5432)


@pytest.mark.parametrize(
    "database",
    ["yes", "mysql://me@db", "postgresql://me:secret@db/other", "postgresql://me/secret"],
)
def test_another_database_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    monkeypatch.setenv("LSM_DATABASE", database)
    with pytest.raises(BadInput, match="LSM_DATABASE must be `local` or") as refused:
        Settings.from_environment()
    assert "secret" not in str(refused.value)
