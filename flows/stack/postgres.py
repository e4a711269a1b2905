"""A PostgreSQL server of the stack's own: `python -m flows.stack.postgres FOLDER`.

It listens on a socket in its folder, which only its user can enter, and on no port: there is no
password to keep. As root, whom PostgreSQL refuses to serve, it runs as the user `postgres`.
"""

import os
import pwd
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from flows.errors import BadInput, ServiceFailed

SOCKET = ".s.PGSQL.5432"
LONGEST_SOCKET = 107  # bytes that an address of a socket has
START_SECONDS = 120.0
DATABASES = ("prefect", "mlflow")


def require_postgres(folder: Path) -> None:
    """Raise BadInput with what to do if no server can be made in a folder."""
    if programs() is None:
        raise BadInput(
            "LSM_DATABASE is `local`, but PostgreSQL is not installed here; install it, give the "
            "URL of a server, or unset LSM_DATABASE for sqlite"
        )
    length = len(os.fsencode(folder / SOCKET))
    if length > LONGEST_SOCKET:
        raise BadInput(
            f"{folder} is too long for a socket in it, by {length - LONGEST_SOCKET} characters; "
            "choose a shorter LSM_STORE"
        )


def programs() -> Path | None:
    """Return where PostgreSQL's programs are, of the newest version, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    beside = shutil.which("initdb")
    newest = found[-1] if found else Path(beside) if beside else None
    return newest and newest.parent


def _version(program: Path) -> int:
    number = program.parts[-3]
    return int(number) if number.isdecimal() else 0


def make_databases(folder: Path) -> None:
    """Wait until the server answers and make the databases that it lacks."""
    try:
        import psycopg2
    except ImportError as error:
        raise BadInput("PostgreSQL needs `pip install lsm[postgres]`") from error
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            connection = psycopg2.connect(host=str(folder), user="postgres", dbname="postgres")
            break
        except psycopg2.OperationalError as error:
            if time.monotonic() > deadline:
                raise ServiceFailed(
                    f"PostgreSQL does not answer in {folder}: {' '.join(str(error).split())}"
                ) from error
            time.sleep(0.3)
    connection.autocommit = True  # a database cannot be made inside a transaction
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("select datname from pg_database")
        known = {name for (name,) in cursor.fetchall()}
        for name in DATABASES:
            if name not in known:
                cursor.execute(f"create database {name}")


def serve(folder: Path) -> None:
    """Become the server, after making its files if there are none; does not return."""
    require_postgres(folder)
    found = programs()
    assert found is not None
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # whoever reaches the socket is trusted
    if os.geteuid() == 0:
        _become("postgres", folder)
    data, partial = folder / "data", folder / "data.partial"
    if not data.exists():
        shutil.rmtree(partial, ignore_errors=True)
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8"]
        subprocess.run([found / "initdb", "--pgdata", partial, *options], check=True)
        partial.rename(data)
    os.execv(
        found / "postgres",
        ["postgres", "-D", str(data), "-k", str(folder), "-c", "listen_addresses="],
    )


def _become(name: str, folder: Path) -> None:
    """Go on as another user, who owns the folder from now on."""
    try:
        user = pwd.getpwnam(name)
    except KeyError as error:
        raise BadInput(f"PostgreSQL does not run as root, and there is no user {name}") from error
    os.chown(folder, user.pw_uid, user.pw_gid)
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"the user {name} cannot enter {folder}; choose another LSM_STORE")


def main() -> None:
    """Serve in the folder that is named; a sentence if that cannot be."""
    try:
        serve(Path(sys.argv[1]))
    except BadInput as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
