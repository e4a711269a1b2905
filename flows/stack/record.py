"""What the local stack has started: its services, the file that names them, and its lock."""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from flows.errors import ServiceFailed
from flows.settings import Settings
from flows.stack.services import MARK, marked_processes, start_service
from storage.errors import StoreUnavailable
from storage.runs.processes import birth_of

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

    def process(self) -> psutil.Process | None:
        """Return the process, or None if it is gone and its number perhaps another's."""
        try:
            return psutil.Process(self.pid) if birth_of(self.pid) == self.born else None
        except psutil.NoSuchProcess:
            return None

    def start(self, environment: Mapping[str, str]) -> "Service":
        """Start its command and return it as it runs now; do not wait until it answers."""
        pid = start_service(self.command, Path(self.log), environment).pid
        return replace(self, pid=pid, born=birth_of(pid) or 0.0)

    def end_remains(self) -> None:
        """End the children of a killed server, which still hold its port.

        Those of a killed worker are runs, and may finish.
        """
        if not self.health:
            return
        for process in marked_processes(self.log):
            try:
                # One that this service started, not what was started in its place.
                if os.getsid(process.pid) == self.pid:
                    process.kill()
            except (psutil.Error, OSError):
                continue  # it has ended


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
        entries = json.loads(stack_file(settings).read_text())
        return [Service(**{**entry, "command": tuple(entry["command"])}) for entry in entries]
    except FileNotFoundError:
        return []
    except OSError as error:
        said = f"{stack_file(settings)} cannot be read: {error.strerror or error}"
        raise ServiceFailed(f"{said}; mend it, or name another store with LSM_STORE") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ServiceFailed(
            f"{stack_file(settings)} is not readable ({error}); remove it, then `lsm stack down`"
        ) from error


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
def stack_lock(state: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of the stack while the block runs; call `on_wait` if another has it for long.

    On a disk that became read-only it is not taken: nobody can change what it guards.
    """
    lock = FileLock(state / "stack.lock")
    try:
        state.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=QUIET_SECONDS)
        except Timeout:
            on_wait()
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
    try:
        # A folder that is gone is not made again by a look at it.
        is_ours = state.is_dir() and bool(lock.acquire(blocking=False))
    except Timeout:
        is_ours = False
    try:
        yield is_ours
    finally:
        lock.release()
