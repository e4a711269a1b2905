"""A Prefect server for the lifetime of one command, where none answers."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from flows.settings import Settings, service_environment
from flows.stack.services import is_healthy, start_service, stop_process, wait_until_healthy


def free_port() -> int:
    """Return a port of loopback that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def prefect_api(settings: Settings) -> Iterator[None]:
    """Provide a Prefect server while the block runs: the one that answers, or one of our own.

    Prefect reads its settings when it is imported, so the environment is set here, before.
    """
    os.environ.update(service_environment(settings))
    # The command itself says in a sentence what failed; the whole story is on the server.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    # Whoever has called a command sees what failed, and calls it again.
    os.environ.setdefault("PREFECT_FLOWS_DEFAULT_RETRIES", "0")
    if is_healthy(f"{settings.prefect_api}/health"):
        os.environ["PREFECT_API_URL"] = settings.prefect_api
        yield
        return
    port = free_port()
    log = settings.state / "logs" / "prefect-server.log"
    command = ("prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port))
    environment = {k: v for k, v in os.environ.items() if k != "PREFECT_API_URL"}
    started = start_service(command, log, environment, ends_with_parent=True)
    server = psutil.Process(started.pid)
    os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{port}/api"
    try:
        import prefect  # noqa: F401  # takes seconds, as the server does

        wait_until_healthy(f"http://127.0.0.1:{port}/api/health", server, log)
        yield
    finally:
        stop_process(server)
