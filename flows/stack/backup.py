"""Copies of the local stack's databases: made while it runs, brought back while it does not.

The store's files are copied after them: they are written before a database names them.
"""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil

from flows.errors import BadInput, ServiceFailed
from flows.settings import Settings, postgres_folder
from flows.stack.postgres import DATABASES, make_databases, programs, require_postgres
from flows.stack.services import services, stack_lock, start_service, stop_process
from storage.location import Location


def back_up(settings: Settings, folder: Path) -> list[Path]:
    """Copy the databases into a new folder, all of them or none; return the copies."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder} is not empty; name a folder that is new")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700, parents=True)
    with stack_lock(settings.state):
        if settings.database:
            with _postgres(settings) as server:
                for name in DATABASES:
                    copy = partial / f"{name}.dump"
                    _run("pg_dump", *server, "--format=custom", f"--file={copy}", name)
        else:
            for name, database in _sqlite_files(settings).items():
                if database.exists():
                    _copy(database, partial / f"{name}.db")
    copies = sorted(copy.name for copy in partial.iterdir())
    if not copies:
        partial.rmdir()
        raise BadInput(f"there are no databases in {settings.state} yet")
    partial.replace(folder)
    return [folder / copy for copy in copies]


def restore(settings: Settings, folder: Path) -> list[Path]:
    """Put copies in the place of the databases and return them; a torn one changes nothing."""
    suffix = "dump" if settings.database else "db"
    found = [copy for name in DATABASES if (copy := folder / f"{name}.{suffix}").is_file()]
    if not found:
        raise BadInput(
            f"{folder} has no copies that end with .{suffix}; name a folder that `lsm stack "
            "backup` has made, and set LSM_DATABASE as it was then"
        )
    Location(settings.state.as_uri()).require_writable()
    with stack_lock(settings.state):
        if any(service.process() for service in services(settings)):
            raise BadInput("the stack runs; `lsm stack down`, then restore")
        # All are read before anything is replaced.
        if settings.database:
            with _postgres(settings) as server:
                for copy in found:
                    _run("pg_restore", "--file=/dev/null", copy)
                anew = ("--dbname=postgres", "--clean", "--if-exists", "--create")
                for copy in found:
                    _run("pg_restore", *server, *anew, "--exit-on-error", copy)
        else:
            for copy in found:
                _check(copy)
            for copy in found:
                _put(copy, _sqlite_files(settings)[copy.stem])
    return found


def _sqlite_files(settings: Settings) -> dict[str, Path]:
    found = {"prefect": settings.state / "prefect" / "prefect.db"}
    if settings.tracking_uri.startswith("sqlite:///"):
        found["mlflow"] = Path(settings.tracking_uri.removeprefix("sqlite:///"))
    return found


def _copy(database: Path, copy: Path) -> None:
    """Copy what is committed at one moment, whoever writes meanwhile."""
    try:
        with closing(sqlite3.connect(database)) as old, closing(sqlite3.connect(copy)) as new:
            old.backup(new)
    except sqlite3.Error as error:
        raise ServiceFailed(f"{database} cannot be copied to {copy}: {error}") from error


def _check(copy: Path) -> None:
    try:
        with closing(sqlite3.connect(f"{copy.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            said = opened.execute("pragma quick_check").fetchone()[0]
    except sqlite3.DatabaseError as error:
        said = str(error)
    if said != "ok":
        raise BadInput(f"{copy} is damaged ({said}); take another copy")


def _put(copy: Path, database: Path) -> None:
    database.parent.mkdir(parents=True, exist_ok=True)
    partial = database.with_name(f"{database.name}.partial")
    partial.unlink(missing_ok=True)
    _copy(copy, partial)
    for journal in ("-wal", "-shm", "-journal"):  # of the old one: they would be taken for ours
        database.with_name(f"{database.name}{journal}").unlink(missing_ok=True)
    partial.replace(database)


@contextmanager
def _postgres(settings: Settings) -> Iterator[tuple[str, ...]]:
    """Provide how to reach the stack's own server: the one that runs, or one for the while."""
    if settings.database != "local":
        raise BadInput("LSM_DATABASE is a server elsewhere; use pg_dump and pg_restore there")
    folder = postgres_folder(settings.state)
    require_postgres(folder)
    reach, server = (f"--host={folder}", "--username=postgres"), None
    if not any(each.name == "postgres" and each.process() for each in services(settings)):
        log = settings.state / "logs" / "postgres.log"
        command = ["flows.stack.postgres", str(folder)]
        server = start_service(command, log, os.environ, ends_with_parent=True)
    try:
        make_databases(folder)
        yield reach
    finally:
        if server is not None:
            stop_process(psutil.Process(server.pid))
            server.wait()


def _run(program: str, *arguments: str | Path) -> None:
    command = [(programs() or Path()) / program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceFailed(f"{program} failed: {' '.join(done.stderr.split())[-400:]}")
