"""The local stack: Prefect server, worker and MLflow as processes on 127.0.0.1, without Docker."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlparse

import psutil

from flows.automations import declare_automations
from flows.errors import BadInput, ServiceFailed
from flows.services import is_healthy, start_service, stop_process, wait_until_healthy
from flows.settings import POOL, Settings, service_environment


@dataclass(frozen=True)
class Service:
    """A process that the stack started; pid and time of birth name it for good."""

    name: str
    pid: int
    born: float
    url: str
    log: str

    def process(self) -> psutil.Process | None:
        """Return the process, or None if it is gone and its number perhaps another's."""
        try:
            process = psutil.Process(self.pid)
            alive = process.create_time() == self.born and process.is_running()
            return process if alive and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def up(settings: Settings) -> list[Service]:
    """Start what does not run yet, deploy the flows, return all services; safe to call twice."""
    if not Path("prefect.yaml").is_file():
        raise BadInput("there is no prefect.yaml in this folder; start the stack in the project's")
    settings.require_usable()
    environment = {**service_environment(settings), "PREFECT_API_URL": settings.prefect_api}
    environment["LSM_STORE"] = settings.root.url
    api = urlparse(settings.prefect_api)
    running = {service.name: service for service in _read(settings) if service.process()}

    def ensure(name: str, command: list[str], url: str, health: str | None) -> None:
        if name in running:
            return
        if health is not None and is_healthy(health):
            raise ServiceFailed(
                f"another server answers at {url}; stop it, or choose another port with "
                "PREFECT_API_URL or LSM_MLFLOW_PORT"
            )
        log = settings.state / "logs" / f"{name}.log"
        process = psutil.Process(start_service(command, log, environment).pid)
        running[name] = Service(name, process.pid, process.create_time(), url, str(log))
        _write(settings, list(running.values()))
        if health is not None:
            wait_until_healthy(health, process, log)

    ui = f"http://127.0.0.1:{api.port}"
    server = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(api.port)]
    ensure("prefect-server", server, ui, f"{settings.prefect_api}/health")
    _prefect(environment, "work-pool", "create", POOL, "--type", "process", "--overwrite")
    _prefect(environment, "--no-prompt", "deploy", "--all")
    try:
        declare_automations(settings.prefect_api)
    except OSError as error:
        raise ServiceFailed(f"the automations cannot be declared: {error}") from error
    ensure("prefect-worker", ["prefect", "worker", "start", "--pool", POOL], ui, None)
    tracking = f"http://127.0.0.1:{settings.mlflow_port}"
    if not settings.tracking_uri.startswith("http"):
        ensure("mlflow-server", _mlflow_command(settings), tracking, f"{tracking}/health")
    return list(running.values())


def down(settings: Settings) -> list[str]:
    """Stop every process of the stack, the worker first, and return their names."""
    stopped = []
    for service in sorted(_read(settings), key=lambda each: each.name != "prefect-worker"):
        process = service.process()
        if process is not None:
            stop_process(process)
            stopped.append(service.name)
    _file(settings).unlink(missing_ok=True)
    return stopped


def status(settings: Settings) -> list[tuple[Service, bool]]:
    """Return the services that were started, each with whether it runs."""
    return [(service, service.process() is not None) for service in _read(settings)]


def _mlflow_command(settings: Settings) -> list[str]:
    return [
        "mlflow",
        "server",
        "--backend-store-uri",
        settings.tracking_uri,
        "--artifacts-destination",
        str(settings.state / "artifacts"),
        "--host",
        "127.0.0.1",
        "--port",
        str(settings.mlflow_port),
        "--workers",
        "1",
    ]


def _prefect(environment: dict[str, str], *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise ServiceFailed(f"`prefect {' '.join(arguments)}` failed: {said[-800:]}")


def _file(settings: Settings) -> Path:
    return settings.state / "stack.json"


def _read(settings: Settings) -> list[Service]:
    try:
        return [Service(**entry) for entry in json.loads(_file(settings).read_text())]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise ServiceFailed(f"{_file(settings)} is not readable ({error}); remove it") from error


def _write(settings: Settings, services: list[Service]) -> None:
    partial = _file(settings).with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps([asdict(service) for service in services], indent=1))
    partial.replace(_file(settings))
