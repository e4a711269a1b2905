"""An MLflow server on loopback for tests, which keeps files itself."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
import psutil

from flows.engine.own_server import free_port
from flows.stack.services import start_service, stop_process, wait_until_healthy


@contextmanager
def running_server(folder: Path) -> Iterator[str]:
    """Provide the address of a server while the block runs."""
    port, log = free_port(), folder / "log"
    command = ("mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db")
    command += ("--artifacts-destination", str(folder / "artifacts"))
    command += ("--host", "127.0.0.1", "--port", str(port), "--workers", "1")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    started = start_service(command, log, environment, ends_with_parent=True)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/health", psutil.Process(started.pid), log)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop_process(psutil.Process(started.pid))
        started.wait()


def record_run(uri: str, folder: Path, identity: str) -> str:
    """Make a run of this identity known to a tracking store, and return its name there."""
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("tests")
    if experiment is None:
        place = None if uri.startswith("http") else (folder / "artifacts").as_uri()
        number = client.create_experiment("tests", place)
    else:
        number = experiment.experiment_id
    run_id: str = client.create_run(number, tags={"identity": identity}).info.run_id
    return run_id
