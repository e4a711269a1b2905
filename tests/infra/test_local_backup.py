"""The lines of infra/README.md that back up and restore the local stack, and what they stand on."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flows.errors import BadInput, ServiceFailed
from flows.settings import Settings, postgres_folder
from flows.stack import postgres
from flows.stack.backup import back_up, restore
from tests.infra.manifests import INFRA, REPOSITORY

# Everything but `lsm stack up`, which needs minutes and is tried in tests/end_to_end.
PROGRAM = f"""#!/bin/sh
[ "$1 $2" = "stack up" ] || exec {sys.executable} -m flows.cli "$@"
"""

WRITES = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
while True:
    with database:
        database.execute("insert into flow_run default values")
        database.execute("insert into task_run default values")
    print("written", flush=True)
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder that every user can reach, unlike those of pytest, and work in it."""
    made = Path(tempfile.mkdtemp(prefix="lsm-"))
    made.chmod(0o755)
    for name in [name for name in os.environ if name.startswith(("LSM_", "MLFLOW_", "PREFECT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(made)
    yield made
    shutil.rmtree(made)


def run_lines(folder: Path) -> tuple[str, str]:
    """Return the commands that back up and those that restore, ready to be run."""
    program = folder / "bin" / "lsm"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    page = (INFRA / "README.md").read_text()
    text = page.split("\n## Back up and restore the local stack\n", 1)[1].split("\n## ", 1)[0]
    first, second = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return first, second


def run(lines: str, folder: Path, **settings: str) -> None:
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines],
        cwd=folder,
        env={
            **os.environ,
            **settings,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
        },
        check=True,
        timeout=300,
    )


def new_database(path: Path) -> None:
    """Make a database as Prefect has it: with a log of what is to be written."""
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma journal_mode = wal")
        for table in ("flow_run", "task_run"):
            database.execute(f"create table {table} (number integer primary key)")


def counted(path: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(path)) as database:
        counts = [
            database.execute(f"select count(*) from {table}").fetchone()[0]
            for table in ("flow_run", "task_run")
        ]
    return counts[0], counts[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow and SQLAlchemy, about their own tables
def test_the_lines_of_the_page_bring_sqlite_files_and_the_store_back(folder: Path) -> None:
    from mlflow import MlflowClient

    saving, restoring = run_lines(folder)
    store = folder / ".lsm"
    new_database(store / "prefect" / "prefect.db")
    (store / "artifacts").mkdir()
    (store / "artifacts" / "picture").write_bytes(b"of a run")
    client = MlflowClient(f"sqlite:///{store}/mlflow.db")
    known = client.create_run(client.create_experiment("benchmark")).info.run_id
    client.log_metric(known, "test/rel_l2", 0.0065, step=500)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITES, str(store / "prefect" / "prefect.db")],
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline()
    run(saving, folder)
    assert writer.poll() is None
    writer.kill()
    writer.communicate()
    runs, tasks = counted(folder / "copies" / "prefect.db")
    assert runs == tasks > 0
    assert counted(store / "prefect" / "prefect.db") > (runs, tasks)

    shutil.rmtree(store)
    run(restoring, folder)
    assert counted(store / "prefect" / "prefect.db") == (runs, tasks)
    assert (store / "artifacts" / "picture").read_bytes() == b"of a run"
    # Another address of the same file: MLflow keeps its connections by address.
    restored = MlflowClient(f"sqlite:///{store}/../.lsm/mlflow.db").get_run(known)
    assert restored.data.metrics == {"test/rel_l2": 0.0065}


def test_a_torn_copy_is_refused_and_nothing_replaced(folder: Path) -> None:
    settings = Settings.from_environment()
    database = settings.state / "prefect" / "prefect.db"
    new_database(database)
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.executemany("insert into flow_run values (?)", [(n,) for n in range(20_000)])
    with pytest.raises(BadInput, match=r"has no copies that end with \.db; name a folder"):
        restore(settings, folder / "copies")
    (copy,) = back_up(settings, folder / "copies")
    with pytest.raises(BadInput, match="copies is not empty; name a folder that is new"):
        back_up(settings, folder / "copies")
    content = copy.read_bytes()
    copy.write_bytes(content[: len(content) // 2])
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("delete from flow_run")
    with pytest.raises(BadInput, match="is damaged"):
        restore(settings, folder / "copies")
    assert counted(database) == (0, 0)
    copy.write_bytes(content)
    assert restore(settings, folder / "copies") == [copy]
    assert counted(database) == (20_000, 0)


@pytest.mark.slow
def test_the_lines_of_the_page_bring_the_stacks_own_postgresql_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed, so its copies were not tried")
    pytest.importorskip("psycopg2")
    saving, restoring = run_lines(folder)
    monkeypatch.setenv("LSM_DATABASE", "local")
    settings = Settings.from_environment()
    tell(settings, "create table runs as select generate_series(1, 1000) as number")
    run(saving, folder)
    assert {each.name for each in (folder / "copies").iterdir()} == {
        "prefect.dump",
        "mlflow.dump",
        "store.tar",
    }
    shutil.rmtree(folder / ".lsm")
    # What the new server has by itself must go: a restored database is the old one, not a mixture.
    tell(settings, "create table other (number integer)")
    run(restoring, folder)
    tables = tell(settings, "select tablename from pg_tables where schemaname = 'public'")
    assert tables == [("runs",)]
    assert tell(settings, "select count(*) from runs") == [(1000,)]

    dump = folder / "copies" / "mlflow.dump"
    dump.write_bytes(dump.read_bytes()[:-500])
    with pytest.raises(ServiceFailed, match="pg_restore failed"):
        restore(settings, folder / "copies")
    assert tell(settings, "select count(*) from runs") == [(1000,)]


def tell(settings: Settings, question: str) -> list[tuple[object, ...]]:
    """Return what the stack's server answers about MLflow's database; it runs meanwhile only."""
    import psycopg2

    from flows.stack.backup import _postgres

    with _postgres(settings):
        where = str(postgres_folder(settings.state))
        connection = psycopg2.connect(host=where, user="postgres", dbname="mlflow")
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(question)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()
