"""A PostgreSQL server of its own for a test, on loopback, with passwords, never as root."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows.engine.own_server import free_port
from tests.infra.manifests import INFRA

NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


@dataclass(frozen=True)
class PostgresServer:
    """A running server; `environment` makes libpq's programs speak to it as `user`."""

    port: int
    programs: Path
    password: str = "superuser's secret"
    user: str = "postgres"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGPASSWORD": self.password,
            "POSTGRES_USER": self.user,
        }

    def ask(self, database: str, question: str, role: str, password: str) -> str:
        """Return the answer to an SQL question asked by a role, or what the server complained."""
        done = subprocess.run(
            ["psql", "--no-align", "--tuples-only", f"--username={role}", database, "-c", question],
            env={**self.environment, "PGPASSWORD": password},
            capture_output=True,
            text=True,
            check=False,
        )
        return (done.stdout + done.stderr).strip()


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Provide a new server while the block runs; skip the test where PostgreSQL is missing."""
    programs = _programs()
    # Not below pytest's folder, which is root's alone when root runs the tests.
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        yield from _serve(Path(folder), programs)


def _serve(folder: Path, programs: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(free_port(), programs)
    as_user = NOBODY if os.geteuid() == 0 else []
    secret = folder / "password"
    secret.write_text(server.password)
    if as_user:
        for path in (folder, secret):
            shutil.chown(path, "nobody", "nogroup")
    data = folder / "data"
    options = f"-p {server.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"

    def run(program: str, *arguments: str | Path) -> None:
        _run([*as_user, programs / program, "-D", data, *arguments])

    run("initdb", "-U", "postgres", "--auth=scram-sha-256", f"--pwfile={secret}")
    run("pg_ctl", "-l", folder / "log", "-w", "-o", f"{options} -c fsync=off", "start")
    try:
        yield server
    finally:
        run("pg_ctl", "-m", "immediate", "-w", "stop")


def make_databases(server: PostgresServer, passwords: Mapping[str, str]) -> None:
    """Run the script that PostgreSQL's image runs when its volume is empty."""
    secrets = {f"{role.upper()}_DATABASE_PASSWORD": each for role, each in passwords.items()}
    subprocess.run(
        ["sh", INFRA / "postgres" / "databases.sh"],
        env={**server.environment, **secrets},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _run(command: list[str | Path]) -> None:
    # A server keeps what it inherits: its output must not be a pipe that is read to the end.
    subprocess.run(command, stdout=subprocess.DEVNULL, cwd="/", check=True, timeout=120)


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    beside = shutil.which("initdb")
    if not found and beside is None:
        pytest.skip("PostgreSQL is not installed, so backing up and restoring was not tried")
    return (found[-1] if found else Path(str(beside))).parent
