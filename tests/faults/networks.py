"""A worker that is cut off from server and store, each on a host of its own, and comes back."""

import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from flows.engine.own_server import free_port
from flows.settings import CELL_POOL, CONTROL_POOL
from tests.faults.cells import Run, Session
from tests.faults.hosts import Host, hosts
from tests.faults.prefect_stack import PrefectStack, kill_family
from tests.faults.table import Trial
from tests.storage.s3_servers import BUCKET, KEY, SECRET, client_environment, in_use
from tests.storage.tracking.test_outage import wait_until

CUT_OFF_SECONDS = 120.0


@contextmanager
def cut_off(folder: Path) -> Iterator[Trial]:
    """Pull the cable of a worker's host for two minutes; server and store are on hosts, too."""
    names = ("server", "store", CONTROL_POOL, "one", "two")
    with hosts(*(name[-6:] for name in names)) as made, ExitStack() as running:
        by_name = dict(zip(names, made, strict=True))
        store = by_name["store"]
        endpoint = running.enter_context(s3_on(store, folder))
        tracking = running.enter_context(mlflow_on(store, folder))
        stack = PrefectStack(folder, hosts=by_name)
        environment = {**client_environment(endpoint), "MLFLOW_TRACKING_URI": tracking}
        stack.environment |= {**environment, "LSM_STORE": f"s3://{BUCKET}/cut-off"}
        running.enter_context(in_use(environment))
        running.callback(stack.stop)
        stack.start_server()
        stack.declare()
        stack.start_worker(CONTROL_POOL)
        for name in ("one", "two"):
            stack.start_worker(CELL_POOL, name, at_once=1)

        def cut(stack: PrefectStack, run: Run, _moments: random.Random) -> bool:
            pid = stack.process_of(run["id"])
            for host in (by_name["one"], by_name["two"]):
                if pid is not None and host.has(pid):
                    host.cut_off()
                    back = threading.Timer(CUT_OFF_SECONDS, host.connect)
                    back.daemon = True
                    back.start()
                    return True
            return False

        yield Session(stack, cut).trial


@contextmanager
def s3_on(host: Host, folder: Path) -> Iterator[str]:
    """Provide the address of an object store on a host."""
    (folder / "buckets" / BUCKET).mkdir(parents=True)
    port = free_port()
    command = ["rclone", "serve", "s3", "--addr", f"{host.address}:{port}"]
    command += ["--auth-key", f"{KEY},{SECRET}", "--config", os.devnull, str(folder / "buckets")]
    with server_on(host, command, host.address, port, folder / "s3.log"):
        yield f"http://{host.address}:{port}"


@contextmanager
def mlflow_on(host: Host, folder: Path) -> Iterator[str]:
    """Provide the address of an MLflow server on a host."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    command += ["--host", host.address, "--port", str(port), "--allowed-hosts", "*"]
    with server_on(host, command, host.address, port, folder / "mlflow.log"):
        yield f"http://{host.address}:{port}"


@contextmanager
def server_on(host: Host, command: list[str], address: str, port: int, log: Path) -> Iterator[None]:
    """Run a server on a host until the block ends; begin when its port is open."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*host.prefix, *command],
            env={**os.environ, "PATH": path, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def is_open() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(OSError), socket.create_connection((address, port), timeout=1):
            return True
        return False

    try:
        wait_until(is_open, seconds=300)
        yield
    finally:
        kill_family(process.pid)
        process.wait()
