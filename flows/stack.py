"""The local stack: Prefect server, worker and MLflow as processes on 127.0.0.1, without Docker."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlparse

import psutil

from flows.automations import declare_automations
from flows.errors import BadInput, ServiceFailed
from flows.postgres import make_databases, require_postgres
from flows.services import MARK, is_healthy, start_service, stop_process, wait_until_healthy
from flows.settings import POOL, Settings, database_url, postgres_folder, service_environment
from storage.processes import birth_of


@dataclass(frozen=True)
class Service:
    """A process that the stack started; pid and time of birth name it for good."""

    name: str
    pid: int
    born: float
    url: str
    log: str
    health: str = ""
    command: tuple[str, ...] = ()

    def process(self) -> psutil.Process | None:
        """Return the process, or None if it is gone and its number perhaps another's."""
        try:
            return psutil.Process(self.pid) if birth_of(self.pid) == self.born else None
        except psutil.NoSuchProcess:
            return None

    def started_again(self) -> "Service":
        """Start the same command once more, in this process's environment."""
        self.end_remains()
        return _start(self.name, self.command, self.url, Path(self.log), self.health, os.environ)

    def end_remains(self) -> None:
        """End what a killed server left: a child that still holds its port.

        What a killed worker left is a run, which may end in peace.
        """
        if not self.health:
            return
        for process in psutil.process_iter():
            try:
                # The number may be another's by now; the mark in the environment is ours.
                if os.getsid(process.pid) == self.pid and process.environ().get(MARK) == self.log:
                    process.kill()
            except (psutil.Error, OSError):
                continue  # it has ended, or is not ours


SUPERVISOR = "supervisor"


def up(settings: Settings) -> list[Service]:
    """Start what does not run yet, deploy the flows, return all services; safe to call twice."""
    if not Path("prefect.yaml").is_file():
        raise BadInput("there is no prefect.yaml in this folder; start the stack in the project's")
    settings.require_usable()
    environment = {**service_environment(settings), "PREFECT_API_URL": settings.prefect_api}
    environment["LSM_STORE"] = settings.root.url
    # Not among the arguments: it may have a password, and arguments are for all to see.
    environment["MLFLOW_BACKEND_STORE_URI"] = settings.tracking_uri
    api = urlparse(settings.prefect_api)
    if any(service.process() is None for service in services(settings)):
        _stop(settings, SUPERVISOR)  # or both of us would start what is missing
    running = {service.name: service for service in services(settings) if service.process()}

    def ensure(name: str, command: list[str], url: str, health: str = "") -> None:
        if name in running:
            return
        if health and is_healthy(health):
            raise ServiceFailed(
                f"another server answers at {url}; stop it, or choose another port with "
                "PREFECT_API_URL or LSM_MLFLOW_PORT"
            )
        log = settings.state / "logs" / f"{name}.log"
        running[name] = _start(name, command, url, log, health, environment)
        keep_services(settings, list(running.values()))
        if health:
            wait_until_healthy(health, psutil.Process(running[name].pid), log)

    if settings.database == "local":
        folder = postgres_folder(settings.state)
        require_postgres(folder)
        ensure("postgres", ["flows.postgres", str(folder)], "")
        make_databases(folder)
    if settings.database:
        known_to_prefect = database_url(settings.database, settings.state, "prefect")
        environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = known_to_prefect
    ui = f"http://127.0.0.1:{api.port}"
    server = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(api.port)]
    ensure("prefect-server", server, ui, f"{settings.prefect_api}/health")
    deploy(settings, environment)
    ensure("prefect-worker", ["prefect", "worker", "start", "--pool", POOL], ui)
    tracking = f"http://127.0.0.1:{settings.mlflow_port}"
    if not settings.tracking_uri.startswith("http"):
        ensure("mlflow-server", _mlflow_command(settings), tracking, f"{tracking}/health")
    ensure(SUPERVISOR, ["flows.supervisor"], "")
    return list(running.values())


def deploy(settings: Settings, environment: Mapping[str, str]) -> None:
    """Make the pool, declare deployments and automations; what is there is brought up to date.

    The server is the one at PREFECT_API_URL, here or elsewhere.
    """
    environment = {**environment, "PREFECT_API_URL": settings.prefect_api}
    _prefect(environment, "work-pool", "create", POOL, "--type", "process", "--overwrite")
    _prefect(environment, "--no-prompt", "deploy", "--all")
    try:
        declare_automations(settings.prefect_api, environment.get("PREFECT_API_AUTH_STRING"))
    except OSError as error:
        raise ServiceFailed(f"the automations cannot be declared: {error}") from error


def down(settings: Settings) -> list[str]:
    """Stop every process of the stack and return their names.

    The supervisor goes first, which would bring the others back, then the worker, then the others,
    those that were started first last.
    """
    first = (SUPERVISOR, "prefect-worker")
    others = [each.name for each in reversed(services(settings)) if each.name not in first]
    stopped = [name for name in (*first, *others) if _stop(settings, name)]
    _file(settings).unlink(missing_ok=True)
    return stopped


def status(settings: Settings) -> list[tuple[Service, bool]]:
    """Return the services that were started, each with whether it runs."""
    return [(service, service.process() is not None) for service in services(settings)]


def services(settings: Settings) -> list[Service]:
    """Return the services that were started, as the stack's file has them."""
    try:
        entries = json.loads(_file(settings).read_text())
        return [Service(**{**entry, "command": tuple(entry["command"])}) for entry in entries]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError) as error:
        raise ServiceFailed(f"{_file(settings)} is not readable ({error}); remove it") from error


def keep_services(settings: Settings, services: list[Service]) -> None:
    """Write the stack's file, whole or not at all."""
    partial = _file(settings).with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps([asdict(service) for service in services], indent=1))
    partial.replace(_file(settings))


def _stop(settings: Settings, name: str) -> bool:
    """Stop a service; return whether it ran."""
    ran = False
    # Read now: while it ran, the supervisor may have started this one again.
    for service in [each for each in services(settings) if each.name == name]:
        process = service.process()
        if process is not None:
            # The children of the supervisor are the services that it has started.
            stop_process(process, with_children=name != SUPERVISOR)
            ran = True
        service.end_remains()
    return ran


def _start(
    name: str,
    command: Sequence[str],
    url: str,
    log: Path,
    health: str,
    environment: Mapping[str, str],
) -> Service:
    pid = start_service(command, log, environment).pid
    return Service(name, pid, birth_of(pid) or 0.0, url, str(log), health, tuple(command))


def _mlflow_command(settings: Settings) -> list[str]:
    return [
        "mlflow",
        "server",
        "--artifacts-destination",
        str(settings.state / "artifacts"),
        "--host",
        "127.0.0.1",
        "--port",
        str(settings.mlflow_port),
        "--workers",
        "1",
    ]


def _prefect(environment: Mapping[str, str], *arguments: str) -> None:
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
