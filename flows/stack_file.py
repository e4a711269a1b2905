"""What the local stack has started: its services, and the file that names them."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from flows.errors import ServiceFailed
from flows.services import MARK, marked_processes, start_service
from flows.settings import Settings
from storage.processes import birth_of

RELEVANT = {
    "postgres": (),
    "prefect-server": ("PREFECT_", "PG"),
    "mlflow-server": ("MLFLOW_", "AWS_", "PG"),
}
"""How the variables begin that a service reads; all of `EVERY` for those that are not named."""
EVERY = ("LSM_", "PREFECT_", "MLFLOW_", "AWS_", "PG", "CUDA_")
OF_ONE_RUN = (MARK, "PREFECT__")
"""Variables that say who started a process, and are no settings."""


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
    fingerprint: str = ""

    def process(self) -> psutil.Process | None:
        """Return the process, or None if it is gone and its number perhaps another's."""
        try:
            return psutil.Process(self.pid) if birth_of(self.pid) == self.born else None
        except psutil.NoSuchProcess:
            return None

    def started_again(self) -> "Service":
        """Start the same command once more, in this process's environment."""
        self.end_remains()
        pid = start_service(self.command, Path(self.log), os.environ).pid
        return replace(self, pid=pid, born=birth_of(pid) or 0.0)

    def end_remains(self) -> None:
        """End what a killed server left: a child that still holds its port.

        What a killed worker left is a run, which may end in peace.
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
        if key.startswith(RELEVANT.get(name, EVERY)) and not key.startswith(OF_ONE_RUN) and value
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
