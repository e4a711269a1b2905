"""The services of this machine: processes, the file that names those of the stack, and its lock."""

import ctypes
import errno
import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import psutil
from filelock import FileLock, Timeout

from flows.errors import ServiceFailed
from flows.settings import Settings
from storage.errors import StoreUnavailable
from storage.runs.processes import birth_of

START_SECONDS = 300.0  # a minute on a busy machine; one that has died is noticed at once
STOP_SECONDS = 20.0
KILL_ROUNDS = 5
HEALTH_SECONDS = 2.0
ANSWER_SECONDS = 10.0
MARK = "LSM_SERVICE"
"""What a service of the stack and its children have in their environment: the service's log."""
RELEVANT = {
    "postgres": (),
    "prefect-server": ("PREFECT_", "PG"),
    "mlflow-server": ("MLFLOW_", "AWS_", "PG"),
}
"""How the variables begin that a service reads; ALL_PREFIXES for those that are not named."""
ALL_PREFIXES = ("LSM_", "PREFECT_", "MLFLOW_", "AWS_", "PG", "CUDA_")
RUN_PREFIXES = (MARK, "PREFECT__")
"""Variables that say who started a process, and are no settings."""
QUIET_SECONDS = 1.0
"""How long one waits for the lock before that is said."""

Condition = Literal["runs", "does not answer", "ended"]


@dataclass(frozen=True)
class Service:
    """A process of the stack; pid and birth name it for good, and are 0 before its start."""

    name: str
    pid: int
    born: float
    url: str
    log: str
    health: str = ""
    command: tuple[str, ...] = ()
    fingerprint: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    """What it finds in its environment beside what all services do."""

    def process(self) -> psutil.Process | None:
        """Return the process, or None if it is gone and its number perhaps another's."""
        try:
            return psutil.Process(self.pid) if birth_of(self.pid) == self.born else None
        except psutil.NoSuchProcess:
            return None

    def condition(self) -> Condition:
        """Return how it is now; a busy machine answers late."""
        if self.process() is None:
            return "ended"
        answers = not self.health or is_healthy(self.health, ANSWER_SECONDS)
        return "runs" if answers else "does not answer"

    def start(self, environment: Mapping[str, str]) -> "Service":
        """Start its command and return it as it runs now; do not wait until it answers."""
        own = {**environment, **dict(self.variables)}
        pid = start_service(self.command, Path(self.log), own).pid
        return replace(self, pid=pid, born=birth_of(pid) or 0.0)

    def end_remains(self) -> None:
        """End the children of a killed server, which still hold its port.

        Those of a killed worker are runs, and may finish.
        """
        if not self.health:
            return
        for process in marked_processes(self.log):
            with suppress(psutil.Error, OSError):  # it has ended
                # One that this service started, not what was started in its place.
                if os.getsid(process.pid) == self.pid:
                    process.kill()


def fingerprint(name: str, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return what tells a service from the same one with other settings.

    A digest: settings may have passwords.
    """
    relevant = {
        key: value
        for key, value in environment.items()
        if key.startswith(RELEVANT.get(name, ALL_PREFIXES))
        and not key.startswith(RUN_PREFIXES)
        and value
    }
    text = json.dumps([list(command), relevant], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def services(settings: Settings) -> list[Service]:
    """Return the services that were started, as the stack's file has them."""
    try:
        return [_service(entry) for entry in json.loads(stack_file(settings).read_text())]
    except FileNotFoundError:
        return []
    except OSError as error:
        said = f"{stack_file(settings)} cannot be read: {error.strerror or error}"
        raise ServiceFailed(f"{said}; mend it, or name another store with LSM_STORE") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ServiceFailed(
            f"{stack_file(settings)} is not readable ({error}); remove it, then `lsm stack down`"
        ) from error


def _service(entry: dict[str, Any]) -> Service:
    """Return a service as a file has it, which knows no tuples."""
    variables = tuple((name, value) for name, value in entry.get("variables", ()))
    return Service(**{**entry, "command": tuple(entry["command"]), "variables": variables})


def keep_services(settings: Settings, services: Sequence[Service]) -> None:
    """Write the stack's file, whole or not at all; only for whoever has the stack's lock."""
    partial = stack_file(settings).with_suffix(f".{os.getpid()}.partial")
    partial.touch(mode=0o600)  # for its user alone: passwords could be guessed by their digests
    partial.write_text(json.dumps([asdict(service) for service in services], indent=1))
    partial.replace(stack_file(settings))


def stack_file(settings: Settings) -> Path:
    """Return where the file lies."""
    return settings.state / "stack.json"


# The kernel releases the lock when its holder dies. The lock's file is never removed: whoever comes
# later would make and lock another file, beside one who still holds the first.


@contextmanager
def stack_lock(state: Path) -> Iterator[None]:
    """Hold the lock of the stack while the block runs; say so if another has it for long.

    On a disk that became read-only it is not taken: nobody can change what it guards.
    """
    lock = FileLock(state / "stack.lock")
    try:
        state.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=QUIET_SECONDS)
        except Timeout:
            waits = "somebody else changes or copies the stack; waiting until that is done"
            print(f"lsm: {waits}", file=sys.stderr, flush=True)
            lock.acquire()
    except OSError as error:
        if error.errno != errno.EROFS or not state.is_dir():
            raise StoreUnavailable(
                f"cannot lock the stack in {state}: {error.strerror or error}; if it was started "
                "with another store, name that with LSM_STORE or --store"
            ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def stack_lock_if_free(state: Path) -> Iterator[bool]:
    """Provide whether this process has the lock now, and if so, hold it while the block runs."""
    lock = FileLock(state / "stack.lock")
    if state.is_dir():  # one that is gone is not made again by a look at it
        with suppress(Timeout):
            lock.acquire(blocking=False)
    try:
        yield lock.is_locked
    finally:
        lock.release()


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


def run_server(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a server in the foreground, return its exit code; it ends when this process does.

    Asked to end by SIGTERM, as by an init system, this process ends the server first.
    """
    tie = _end_with_parent if sys.platform == "linux" else None
    server = psutil.Popen(command, env=dict(environment), preexec_fn=tie)  # no thread runs yet
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return int(server.wait())
    finally:
        stop_process(server)
        signal.signal(signal.SIGTERM, before)


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
    except (http.client.HTTPException, OSError, ValueError):
        return False


def stop_process(process: psutil.Process, *, with_children: bool = True) -> None:
    """Ask a process and its children to end, and end them if they do not."""
    try:
        family = [process, *(process.children(recursive=True) if with_children else ())]
        process.terminate()
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
