"""The supervisor with real processes: web servers of Python's own."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows import stack
from flows import supervisor as supervisor_module
from flows.services import free_port, is_healthy, start_service
from flows.settings import Settings
from flows.stack import Service, keep_services, services
from flows.supervisor import LONGEST_PAUSE, PAUSE, Restarts, supervise
from storage.processes import birth_of

# Services outlive whoever started them, which Python warns of.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

FORKS = """
import http.server, os, sys, time
if os.fork():
    time.sleep(600)
http.server.ThreadingHTTPServer.allow_reuse_address = True
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""
"""A server whose child holds the port, as that of MLflow does."""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setenv("LSM_STORE", str(tmp_path))
    (tmp_path / "forking_server.py").write_text(FORKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = Settings.from_environment()
    yield made
    stack.down(made)


def started(settings: Settings, module: str) -> Service:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = settings.state / "server.log"
    pid = start_service([module, str(port)], log, os.environ).pid
    command = (module, str(port))
    service = Service("web-server", pid, birth_of(pid) or 0.0, url, str(log), url, command)
    keep_services(settings, [service])
    wait_for(lambda: is_healthy(url))
    return service


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("module", ["http.server", "forking_server"])
def test_a_killed_server_comes_back_on_its_port_and_goes_for_good_with_the_stack(
    settings: Settings, module: str
) -> None:
    first = started(settings, module)
    is_over = threading.Event()
    supervisor = threading.Thread(target=supervise, args=(settings, is_over))
    supervisor.start()
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: services(settings)[0].pid != first.pid)
    wait_for(lambda: is_healthy(first.url))
    is_over.set()
    supervisor.join()
    (second,) = services(settings)
    assert second.process() is not None
    assert stack.down(settings) == ["web-server"]
    assert second.process() is None
    assert not is_healthy(first.url)


def test_the_supervisor_outlives_a_full_disk_and_leaves_nothing_that_nobody_knows(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = started(settings, "http.server")
    keep, tries = supervisor_module.keep_services, []

    def full(*arguments: Any) -> None:
        tries.append(arguments[1])
        if len(tries) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        keep(*arguments)

    monkeypatch.setattr(supervisor_module, "keep_services", full)
    is_over = threading.Event()
    supervisor = threading.Thread(target=supervise, args=(settings, is_over))
    supervisor.start()
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: services(settings)[0].pid != first.pid)
    is_over.set()
    supervisor.join()
    assert len(tries) == 2
    assert tries[0][0].process() is None
    assert services(settings)[0].process() is not None


def test_a_process_that_has_got_the_number_of_a_dead_one_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        dead = Service(
            "web-server", other.pid, 1.0, "", str(tmp_path / "log"), "http://127.0.0.1:9"
        )
        dead.end_remains()
        time.sleep(0.2)
        assert other.poll() is None
        other.kill()


def test_the_supervisor_ends_when_asked_and_leaves_what_it_started(settings: Settings) -> None:
    first = started(settings, "http.server")
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "flows.supervisor"], stdout=subprocess.PIPE, text=True
    )
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: services(settings)[0].pid != first.pid)
    supervisor.terminate()
    said, _ = supervisor.communicate(timeout=60)
    assert supervisor.returncode == 0
    assert said.startswith("web-server had ended and was started again as process ")
    wait_for(lambda: is_healthy(first.url))


def test_what_dies_again_and_again_is_tried_after_longer_and_longer_pauses() -> None:
    restarts, now, pauses = Restarts(), 1000.0, []
    for _ in range(10):
        assert restarts.are_due(now)
        assert not restarts.are_due(now)
        pauses.append(restarts.pause)
        now += restarts.pause
    assert pauses[:4] == [PAUSE, 2 * PAUSE, 4 * PAUSE, 8 * PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    now += 3 * LONGEST_PAUSE  # it has lived for minutes
    assert restarts.are_due(now)
    assert restarts.pause == PAUSE
