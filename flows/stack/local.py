"""The local stack: Prefect server, worker and MLflow as processes on 127.0.0.1, without Docker.

Whoever changes it holds its lock: of two that start it at once, the second finds it running.
"""

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlparse

import psutil

from flows.errors import BadInput, ServiceFailed
from flows.settings import (
    CELL_POOL,
    CONTROL_POOL,
    Settings,
    database_url,
    postgres_folder,
    service_environment,
)
from flows.stack.deployment import deploy
from flows.stack.postgres import make_databases, require_postgres
from flows.stack.services import (
    Service,
    fingerprint,
    is_healthy,
    keep_services,
    services,
    stack_file,
    stack_lock,
    stop_marked,
    stop_process,
    wait_until_healthy,
)

SUPERVISOR, WORKER = "supervisor", "prefect-worker"


def up(settings: Settings) -> None:
    """Start what does not run yet and deploy the flows; safe to call twice."""
    if not Path("prefect.yaml").is_file():
        raise BadInput("there is no prefect.yaml in this folder; start the stack in the project's")
    settings.root.require_writable()
    if settings.database == "local":
        require_postgres(postgres_folder(settings.state))
    with stack_lock(settings.state):
        known = services(settings)
        running = {service.name: service for service in known if service.process()}
        _require_same_settings(running, wanted(settings))
        for service in known:
            if service.name not in running:
                service.end_remains()
        for each in wanted(settings):
            if each.name not in running:
                _start(settings, each, running)
            if each.name == "postgres":
                make_databases(postgres_folder(settings.state))
            if each.name == "prefect-server":
                deploy(settings, stack_environment(settings))


def wanted(settings: Settings) -> list[Service]:
    """Return the services of these settings, not started, in the order in which they start."""
    environment = stack_environment(settings)

    def service(name: str, *command: str, url: str = "", health: str = "", **more: str) -> Service:
        log = str(settings.state / "logs" / f"{name}.log")
        digest = fingerprint(name, command, {**environment, **more})
        return Service(name, 0, 0.0, url, log, health, command, digest, tuple(more.items()))

    port = str(urlparse(settings.prefect_api).port)
    ui, tracking = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{settings.mlflow_port}"
    server = ("prefect", "server", "start", "--host", "127.0.0.1", "--port", port)
    found = [
        service("prefect-server", *server, url=ui, health=f"{settings.prefect_api}/health"),
        service(WORKER, "prefect", "worker", "start", "--pool", CONTROL_POOL, url=ui),
    ]
    for name, limit, more in cell_workers(settings):
        start = ("prefect", "worker", "start", "--pool", CELL_POOL, "--limit", str(limit))
        found.append(service(name, *start, url=ui, **more))
    if settings.database == "local":
        found.insert(
            0, service("postgres", "flows.stack.postgres", str(postgres_folder(settings.state)))
        )
    if not settings.tracking_uri.startswith("http"):
        # Where commands and workers, which speak with the database, put files themselves: they have
        # to find what somebody records through the server.
        artifacts = ("--default-artifact-root", (settings.root / "artifacts").url)
        address = ("--host", "127.0.0.1", "--port", str(settings.mlflow_port), "--workers", "1")
        command = ("mlflow", "server", *artifacts, *address)
        found.append(service("mlflow-server", *command, url=tracking, health=f"{tracking}/health"))
    return [*found, service(SUPERVISOR, "flows.stack.supervisor")]


def cell_workers(settings: Settings) -> list[tuple[str, int, dict[str, str]]]:
    """Return the workers that train: one a GPU, or one that takes a cell a core.

    Each has its name, how many cells it takes at once, and what they find in their environment.
    """
    if settings.cell_pool_type != "process":
        return []  # whoever made that pool has its workers
    gpus = listed_gpus(settings)
    if not gpus:
        return [(f"{WORKER}-cells", settings.n_workers, {"LSM_WORKERS": "1"})]
    at_once = settings.runs_per_gpu
    threads = str(max(1, settings.n_workers // (len(gpus) * at_once)))
    return [
        (f"{WORKER}-gpu-{gpu}", at_once, {"CUDA_VISIBLE_DEVICES": gpu, "LSM_WORKERS": threads})
        for gpu in gpus
    ]


def listed_gpus(settings: Settings) -> list[str]:
    """Return the numbers of the GPUs that cells may use, as CUDA counts them."""
    if settings.device not in ("auto", "cuda") or settings.gpus == "none":
        return []
    if settings.gpus:
        return [gpu.strip() for gpu in settings.gpus.split(",") if gpu.strip()]
    asked = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return told.stdout.split()


def stack_environment(settings: Settings) -> dict[str, str]:
    """Return the environment that all services of these settings are started with."""
    environment = {
        **service_environment(settings),
        "PREFECT_API_URL": settings.prefect_api,
        "LSM_STORE": settings.root.url,
        "LSM_MLFLOW_PORT": str(settings.mlflow_port),
        # Not among the arguments: it may have a password, and arguments are for all to see.
        "MLFLOW_BACKEND_STORE_URI": settings.tracking_uri,
    }
    if settings.database:
        known_to_prefect = database_url(settings.database, settings.state, "prefect")
        environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = known_to_prefect
    return environment


def _require_same_settings(running: Mapping[str, Service], wanted: list[Service]) -> None:
    """Raise ServiceFailed, and change nothing, if something runs with settings of another time."""
    now = {each.name: each.fingerprint for each in wanted}
    other = [
        name
        for name, service in running.items()
        if name not in now or service.fingerprint not in ("", now[name])
    ]
    if other:
        raise ServiceFailed(
            f"running with other settings than those of now: {', '.join(other)}; "
            "`lsm stack down`, then `lsm stack up` applies them"
        )


def _start(settings: Settings, wanted: Service, running: dict[str, Service]) -> None:
    """Start a service, write it down at once and wait until it answers."""
    if wanted.health and is_healthy(wanted.health):
        raise ServiceFailed(
            f"another server answers at {wanted.url}; stop it, or choose another port with "
            "PREFECT_API_URL or LSM_MLFLOW_PORT"
        )
    started = running[wanted.name] = wanted.start(stack_environment(settings))
    keep_services(settings, list(running.values()))
    if started.health:
        wait_until_healthy(started.health, psutil.Process(started.pid), Path(started.log))


def down(settings: Settings) -> list[str]:
    """Stop every process of the stack and return their names.

    The supervisor goes first, which would bring the others back, then the worker, then the others,
    those that were started first last. What a killed one left goes with it, and at the end what has
    a mark of the stack though no file names it.
    """
    with stack_lock(settings.state):
        order = sorted(
            services(settings),
            key=lambda each: 2 * (each.name == SUPERVISOR) + each.name.startswith(WORKER),
        )
        stopped = [service.name for service in order[::-1] if _stop(service)]
        left = stop_marked(settings.state / "logs")
        with suppress(OSError):  # in a folder that is read-only it stays, and names what has ended
            stack_file(settings).unlink(missing_ok=True)
    return [*stopped, *sorted(left)]


def _stop(service: Service) -> bool:
    """Stop a service and what is left of it; return whether anything ran."""
    process = service.process()
    if process is not None:
        # The children of the supervisor are the services that it has started.
        stop_process(process, with_children=service.name != SUPERVISOR)
    return bool(stop_marked(service.log)) or process is not None
