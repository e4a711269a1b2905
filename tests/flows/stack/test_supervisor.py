"""The supervisor with real processes: web servers of Python's own."""

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.settings import Settings
from flows.stack import local as stack
from flows.stack import supervisor as supervisor_module
from flows.stack.services import Service, is_healthy, services, stack_lock
from flows.stack.supervisor import LONGEST_PAUSE, PAUSE, Backoff, Health, supervise
from storage.runs.processes import birth_of
from tests.flows.stack.small_servers import start_server, start_worker, wait_for, write_modules

# Services outlive whoever started them, which Python warns of.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setenv("LSM_STORE", str(tmp_path))
    write_modules(tmp_path)
    monkeypatch.setattr("flows.stack.services.STOP_SECONDS", 3.0)  # these have nothing to finish
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = Settings.from_environment()
    yield made
    stack.down(made)


@pytest.mark.parametrize("module", ["http.server", "forking_server"])
def test_a_killed_server_comes_back_on_its_port_and_goes_for_good_with_the_stack(
    settings: Settings, module: str
) -> None:
    first = start_server(settings, module)
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
    first = start_server(settings)
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
    first = start_server(settings)
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "flows.stack.supervisor"], stdout=subprocess.PIPE, text=True
    )
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: services(settings)[0].pid != first.pid)
    supervisor.terminate()
    said, _ = supervisor.communicate(timeout=60)
    assert supervisor.returncode == 0
    assert said.startswith("web-server had ended and was started again as process ")
    wait_for(lambda: is_healthy(first.url))


def test_what_dies_again_and_again_is_restarted_with_backoff() -> None:
    backoff, now, pauses = Backoff(), 1000.0, []
    for _ in range(10):
        assert backoff.is_over(now)
        assert not backoff.is_over(now)
        pauses.append(backoff.pause)
        now += backoff.pause
    assert pauses[:4] == [PAUSE, 2 * PAUSE, 4 * PAUSE, 8 * PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    now += 3 * LONGEST_PAUSE  # it has lived for minutes
    assert backoff.is_over(now)
    assert backoff.pause == PAUSE


def set_patience(
    patch: pytest.MonkeyPatch, *, pause: float, answer: float, silence: float, questions: int
) -> None:
    patch.setattr(supervisor_module, "QUESTION_PAUSE", pause)
    patch.setattr("flows.stack.services.ANSWER_SECONDS", answer)
    patch.setattr(supervisor_module, "LONGEST_SILENCE", silence)
    patch.setattr(supervisor_module, "QUESTIONS", questions)


@pytest.fixture
def supervised(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Look after the stack, without much patience, until the test ends."""
    set_patience(monkeypatch, pause=0.1, answer=0.5, silence=2.0, questions=3)
    monkeypatch.setattr(supervisor_module, "PAUSE", 0.1)
    is_over = threading.Event()
    supervisor = threading.Thread(target=supervise, args=(settings, is_over))
    supervisor.start()
    yield settings
    is_over.set()
    supervisor.join()


def test_a_server_that_answers_no_more_is_started_again(
    supervised: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    first = start_server(supervised)
    time.sleep(1.0)  # it has answered
    os.kill(first.pid, signal.SIGSTOP)
    wait_for(lambda: services(supervised)[0].pid != first.pid)
    wait_for(lambda: is_healthy(first.url))
    assert first.process() is None
    assert re.search(r"web-server had not answered for \d+ s and was", capsys.readouterr().out)


def test_a_server_that_is_silent_for_a_while_is_left_alone(supervised: Settings) -> None:
    first = start_server(supervised)
    for _ in range(3):
        time.sleep(0.5)
        os.kill(first.pid, signal.SIGSTOP)
        time.sleep(1.2)
        os.kill(first.pid, signal.SIGCONT)
        wait_for(lambda: is_healthy(first.url))
    assert services(supervised) == [first]


def test_silence_counts_only_after_an_answer_and_several_questions(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start_server(settings)
    set_patience(monkeypatch, pause=0.0, answer=0.2, silence=0.0, questions=2)
    health = Health(service)
    os.kill(service.pid, signal.SIGSTOP)
    health.check()
    health.check()
    assert health.silence() is None  # it may still be starting
    os.kill(service.pid, signal.SIGCONT)
    wait_for(lambda: is_healthy(service.url))
    health.check()
    os.kill(service.pid, signal.SIGSTOP)
    health.check()
    assert health.silence() is None
    health.check()
    assert health.silence() is not None


def test_nothing_is_started_while_another_changes_the_stack(supervised: Settings) -> None:
    first = start_server(supervised)
    with stack_lock(supervised.state):
        os.kill(first.pid, signal.SIGKILL)
        time.sleep(2.0)
        assert services(supervised) == [first]
    wait_for(lambda: services(supervised)[0].pid != first.pid)


def test_the_run_of_a_killed_worker_goes_on_while_the_stack_is_up(
    supervised: Settings, tmp_path: Path
) -> None:
    worker, run = start_worker(supervised, tmp_path / "run")
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: services(supervised)[0].pid != worker.pid)
    wait_for(lambda: (tmp_path / "run").read_text() not in ("", str(run)))
    assert birth_of(run)
