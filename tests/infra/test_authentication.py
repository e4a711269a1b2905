"""The servers as the compose file starts them, asked over HTTP with and without the password."""

import base64
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from fsspec.core import url_to_fs

from flows.engine.own_server import free_port
from flows.stack.services import start_service, stop_process, wait_until_healthy
from tests.infra.manifests import INFRA, Process, compose, compose_processes, tool
from tests.infra.postgres_server import PostgresServer, make_databases, postgres_server

SECRETS = {
    "PREFECT_AUTH_STRING": "admin:of prefect",
    "PREFECT_DATABASE_PASSWORD": "a 'quoted' password",
    "MLFLOW_DATABASE_PASSWORD": 'another "one"',
    "MLFLOW_ADMIN_PASSWORD": "twelve letters",
    "MLFLOW_SECRET_KEY": "signs the forms",
    "STORE_ACCESS_KEY": "accesskey",
    "STORE_SECRET_KEY": "secretsecretsecret",
}


def filled(text: str) -> str:
    """Return a text with its secrets put in, as compose does it."""
    return re.sub(r"\$\{(\w+):[?-][^}]*\}", lambda found: SECRETS.get(found[1], ""), text)


def service(name: str) -> Process:
    return next(process for process in compose_processes() if process.name == name)


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """Return a server with the two databases."""
    with postgres_server() as server:
        names = ("PREFECT_DATABASE_PASSWORD", "MLFLOW_DATABASE_PASSWORD")
        make_databases(server, {name.split("_")[0].lower(): SECRETS[name] for name in names})
        yield server


@contextmanager
def served(
    name: str, container_port: int, health: str, database: PostgresServer, folder: Path
) -> Iterator[str]:
    """Provide a service of the compose file as a process on loopback; only places differ."""
    process, port = service(name), free_port()

    def here(text: str) -> str:
        text = filled(text).replace("postgres:5432", f"127.0.0.1:{database.port}")
        return re.sub(rf"\b{container_port}\b", str(port), text.replace("0.0.0.0", "127.0.0.1"))

    environment = {
        **database.environment,
        **{key: here(value) for key, value in process.environment.items()},
        "PGHOST": "127.0.0.1",
        "PGPORT": str(database.port),
        "HOME": str(folder),
        "PREFECT_HOME": str(folder),
        # What the image sets.
        "DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_AUTH_CONFIG_PATH": str(INFRA / "images" / "basic_auth.ini"),
    }
    log = folder / f"{name}.log"
    command = [here(word) for word in process.command]
    started = start_service(command, log, environment, ends_with_parent=True)
    server = psutil.Process(started.pid)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}{health}", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop_process(server)
        started.wait()


def status(url: str, login: str | None = None, host: str | None = None) -> int:
    """Return the code of the answer to a request, with a name and password if they are given."""
    headers = {"Host": host} if host else {}
    if login:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=20
        ) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.mark.slow
def test_prefect_refuses_whoever_does_not_know_the_password(
    database: PostgresServer, tmp_path: Path
) -> None:
    with served("prefect-server", 4200, "/api/health", database, tmp_path) as address:
        assert status(f"{address}/api/admin/version") == 401
        assert status(f"{address}/api/admin/version", "admin:wrong") == 401
        assert status(f"{address}/api/admin/version", SECRETS["PREFECT_AUTH_STRING"]) == 200
        assert status(f"{address}/api/ready") == 200


@pytest.mark.slow
def test_mlflow_refuses_strangers_and_strange_names(
    database: PostgresServer, tmp_path: Path
) -> None:
    if find_spec("flask_wtf") is None:
        pytest.skip("mlflow[auth] is not installed, so MLflow's login was not tried")
    with served("mlflow", 5000, "/health", database, tmp_path) as address:
        runs = f"{address}/api/2.0/mlflow/experiments/search?max_results=1"
        login = f"admin:{SECRETS['MLFLOW_ADMIN_PASSWORD']}"
        assert status(runs) == 401
        assert status(runs, "admin:wrong") == 401
        assert status(runs, login) == 200
        assert status(runs, login, host="elsewhere.example") == 403
        users = database.ask(
            "mlflow", "SELECT username FROM users", "mlflow", SECRETS["MLFLOW_DATABASE_PASSWORD"]
        )
        assert users == "admin"


@pytest.mark.slow
def test_the_object_store_refuses_whoever_has_no_key(tmp_path: Path) -> None:
    declared = compose()["services"]["object-store"]
    port = free_port()
    script = declared["command"][0].replace("/data", str(tmp_path)).replace("9000", str(port))
    key = filled(declared["environment"]["RCLONE_AUTH_KEY"])
    programs = Path(tool("rclone")).parent
    server = subprocess.Popen(
        ["sh", "-c", script.replace("0.0.0.0", "127.0.0.1")],
        env={"PATH": f"{programs}:/usr/bin:/bin", "RCLONE_AUTH_KEY": key, "HOME": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def store(key: str, secret: str) -> object:
        options = {"region_name": "us-east-1", "endpoint_url": f"http://127.0.0.1:{port}"}
        return url_to_fs("s3://lsm", key=key, secret=secret, client_kwargs=options)[0]

    try:
        wait_for_port(port)
        assert status(f"http://127.0.0.1:{port}/lsm") in (400, 401, 403)
        with pytest.raises(PermissionError):
            store("accesskey", "wrongwrongwrongwrong").pipe_file("lsm/probe", b"1")
        known = store(SECRETS["STORE_ACCESS_KEY"], SECRETS["STORE_SECRET_KEY"])
        known.pipe_file("lsm/probe", b"1")
        assert (tmp_path / "lsm" / "probe").read_bytes() == b"1"
    finally:
        server.terminate()
        server.wait(timeout=20)


def wait_for_port(port: int) -> None:
    """Return when something listens on a port of loopback."""
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
