"""Services of a stack that start at once: web servers of Python's own, and a worker that forks."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from flows.engine.own_server import free_port
from flows.settings import Settings
from flows.stack.services import Service, is_healthy, keep_services, start_service
from storage.runs.processes import birth_of

FORKS = """
import http.server, os, sys, time
if os.fork():
    time.sleep(600)
http.server.ThreadingHTTPServer.allow_reuse_address = True
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""
"""A server whose child holds the port, as that of MLflow does."""

WORKS = """
import subprocess, sys, time
from pathlib import Path
run = subprocess.Popen(["sleep", "600"], start_new_session=True)
Path(sys.argv[1]).write_text(str(run.pid))
time.sleep(600)
"""
"""A worker whose run is in a session of its own, as those of Prefect are."""


def write_modules(folder: Path) -> None:
    """Write the modules that services of the tests run."""
    (folder / "forking_server.py").write_text(FORKS)
    (folder / "small_worker.py").write_text(WORKS)


def start_server(settings: Settings, module: str = "http.server") -> Service:
    """Start a web server as the only service of the stack and wait until it answers."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    service = start(settings, "web-server", (module, str(port)), url)
    keep_services(settings, [service])
    wait_for(lambda: is_healthy(url))
    return service


def start(settings: Settings, name: str, command: tuple[str, ...], health: str = "") -> Service:
    """Start a service, which nobody has written down yet."""
    log = settings.state / "logs" / f"{name}.log"
    pid = start_service(command, log, os.environ).pid
    return Service(name, pid, birth_of(pid) or 0.0, health, str(log), health, command)


def start_worker(settings: Settings, note: Path) -> tuple[Service, int]:
    """Start a worker as the only service of the stack; return it and the process of its run."""
    worker = start(settings, "prefect-worker", ("small_worker", str(note)))
    keep_services(settings, [worker])
    wait_for(lambda: note.exists() and note.read_text())
    return worker, int(note.read_text())


def wait_for(what: Callable[[], object]) -> None:
    """Return when something is true."""
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)
