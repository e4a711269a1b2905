"""Servers as processes of this machine: started, waited for and stopped."""

import ctypes
import http.client
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from flows.errors import ServiceFailed

START_SECONDS = 300.0  # a minute on a busy machine; one that has died is noticed at once
STOP_SECONDS = 20.0
KILL_ROUNDS = 5
HEALTH_SECONDS = 2.0
MARK = "LSM_SERVICE"
"""What a service of the stack and its children have in their environment: the service's log."""


def start_service(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    *,
    ends_with_parent: bool = False,
) -> subprocess.Popen[bytes]:
    """Start `python -m command` in a session of its own, its output going to a log file.

    With `ends_with_parent` the service ends when this process does, even if it is killed (on
    Linux; elsewhere a killed command leaves it behind).
    """
    tie = _end_with_parent if ends_with_parent and sys.platform == "linux" else None
    # One that ends with a command is no service of the stack, whose end must not end it.
    mark = {} if ends_with_parent else {MARK: str(log)}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, **mark},
            start_new_session=True,
            preexec_fn=tie,  # noqa: PLW1509  # no thread runs yet when a command starts
        )


def _end_with_parent() -> None:
    """Ask Linux to send SIGTERM to this process when its parent dies."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def wait_until_healthy(url: str, process: psutil.Process, log: Path) -> None:
    """Return when a URL answers; ServiceFailed, with the log's place, if it does not come up."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if is_healthy(url):
            return
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            raise ServiceFailed(f"a server ended before it answered at {url}; its log is {log}")
        time.sleep(0.3)
    raise ServiceFailed(f"nothing answers at {url} after {START_SECONDS:.0f} s; the log is {log}")


def is_healthy(url: str, seconds: float = HEALTH_SECONDS) -> bool:
    """Return whether a URL answers with success, within some seconds."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError):
        return False


def stop_process(process: psutil.Process, *, with_children: bool = True) -> None:
    """Ask a process and its children to end, and end them if they do not."""
    try:
        family = [process, *(process.children(recursive=True) if with_children else ())]
        process.send_signal(signal.SIGTERM)
    except psutil.NoSuchProcess:
        return
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    _kill(alive)


def stop_marked(log: Path | str) -> set[str]:
    """End whatever has a service's mark, asked first; return the names of those services.

    A killed worker leaves runs, in sessions of their own, that name nothing else of it.
    """
    found = marked_processes(log)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    psutil.wait_procs(list(found), timeout=STOP_SECONDS)
    # Again and again: they may have started others while they were asked.
    for _ in range(KILL_ROUNDS):
        if not (alive := marked_processes(log)):
            break
        _kill(list(alive))
    return {mark.stem for mark in found.values()}


def marked_processes(log: Path | str) -> dict[psutil.Process, Path]:
    """Return the processes with the mark of a service, or of any whose log is in a folder."""
    found = {}
    for process in psutil.process_iter():
        try:
            mark = Path(process.environ().get(MARK, ""))
            if Path(log) in (mark, mark.parent) and process.pid != os.getpid():
                found[process] = mark
        except (psutil.Error, OSError):
            continue  # it has ended, or is another user's
    return found


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=5)
