"""The record of training runs in MLflow, which a run never waits for.

Runs are flat and tagged, never nested: MLflow's charts of a list of runs then fill by themselves.
What a run records goes into its journal on this machine first. A thread brings it to MLflow from
there, in batches, since one call a metric costs some thirty milliseconds; while MLflow is away the
journal grows, and the training does not notice.
"""

import logging
import math
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import mlflow

from storage.errors import StoreUnavailable
from storage.location import Location
from storage.run_delivery import FINAL_STATES, Delivery, Sender
from storage.run_journal import Heading, Journal, without_credentials
from storage.tracking_store import (
    absolute,
    experiment_number,
    is_server,
    open_client,
    require_possible,
    told,
)

logger = logging.getLogger(__name__)

PATIENCE = 10.0
# MLflow makes the tables of a new database itself, which takes long on a busy machine.
DATABASE_PATIENCE = 120.0


class Tracking:
    """A tracking database or server, and one experiment in it; making one contacts nothing.

    `journal` is a folder of this machine for what the store does not have yet. The end of a run
    waits at most `patience` seconds for the store to have all of it.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        artifacts: Location,
        journal: Path,
        *,
        patience: float | None = None,
    ) -> None:
        self.uri = absolute(uri)
        self.experiment = experiment
        self.artifacts = artifacts
        self.journal = journal
        self.patience = patience
        require_possible(uri)

    def open_run(self, identity: str, name: str, tags: Mapping[str, str]) -> "RunLog":
        """Return the run of an experiment: the one begun before, or a new one."""
        heading = Heading(
            uri=self.uri,
            experiment=self.experiment,
            artifacts=self.artifacts.url,
            identity=identity,
            name=name,
            tags=dict(tags),
            started=_now(),
        )
        try:
            self.journal.mkdir(parents=True, exist_ok=True)
            return RunLog(Journal(self.journal / heading.file_name, heading), self)
        except OSError as error:
            raise StoreUnavailable(
                f"cannot keep the journal of a run in {self.journal}: {error.strerror or error}; "
                "make the folder writable or choose another store with LSM_STORE or --store"
            ) from error

    @cached_property
    def client(self) -> mlflow.MlflowClient:
        """Return MLflow's client; a new database is made ready first."""
        with told(self.uri):
            return open_client(self.uri, self.journal)

    @cached_property
    def experiment_id(self) -> str:
        """Return the number of the experiment; StoreUnavailable if the store does not answer."""
        with told(self.uri):
            return experiment_number(self.client, self.uri, self.experiment, self.artifacts.url)

    def seconds_to_wait(self, has_failed: bool) -> float:
        """Return how long the end of a run waits for the store, which has failed since or not."""
        if self.patience is not None:
            return self.patience
        return PATIENCE if has_failed or is_server(self.uri) else DATABASE_PATIENCE


class RunLog:
    """One run: parameters once, metrics by step, files, and how it ended.

    Nothing here waits for the tracking store, but for `finish`, and that for a bounded time.
    Several threads may log.
    """

    def __init__(self, journal: Journal, tracking: Tracking) -> None:
        self._journal = journal
        self._tracking = tracking
        self._unwritten: list[Mapping[str, Any]] = []
        self._mutex = threading.RLock()
        journal.append({"status": "RUNNING", "at": _now()})
        journal.read()
        self._last_steps = dict(journal.last_steps)
        self._sender = self._start_sender()

    @property
    def run_id(self) -> str | None:
        """Return MLflow's name of the run, or None while the store does not have it."""
        return self._sender.delivery.run_id or self._journal.run_id

    def set_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Record the settings of the run; setting the same again changes nothing."""
        self._append({"parameters": {name: str(value) for name, value in parameters.items()}})

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Add or replace tags."""
        self._append({"tags": {name: str(value) for name, value in tags.items()}})

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take in metrics of a step; a step that the run has already is left out."""
        step = int(step)
        with self._mutex:
            new = {name: float(v) for name, v in metrics.items() if step > self._last_step(name)}
            if new:
                self._append({"step": step, "metrics": new})
                self._last_steps.update(dict.fromkeys(new, step))

    def flush(self) -> None:
        """Force to disk what was taken in, and let it be sent soon; does not wait for that."""
        with self._unharmed():
            self._write()
            self._journal.force_to_disk()
        if not self._sender.is_alive():
            self._sender = self._start_sender()
        self._sender.send_soon()

    def add_file(self, path: str, content: bytes) -> None:
        """Attach a file."""
        with self._unharmed():
            self._journal.append_file(path, content, _now())

    def is_sent(self) -> bool:
        """Return whether the store has all that was taken in."""
        self._journal.read()
        return not self._journal.waiting and not self._unwritten

    def finish(self, status: str = "FINISHED") -> None:
        """Close the run and wait a bounded time until the store has all of it.

        What it does not have by then stays in the journal, for the next process that sends it.
        """
        if status not in FINAL_STATES:
            raise ValueError(f"a run ends as one of {FINAL_STATES}, not as {status!r}")
        self._append({"status": status})
        self.flush()
        self._sender.hurry()
        if not self._wait():
            logger.warning(
                "%s does not have the end of the run yet; it waits in %s, `lsm runs sync` sends it",
                without_credentials(self._tracking.uri),
                self._journal.path,
            )
        self.close()

    def close(self) -> None:
        """Stop sending and leave the run open; what waits stays in the journal."""
        self._sender.stop()
        # It may hang in a request to a server that hangs; then it ends with that, by itself.
        self._sender.join(timeout=1.0)
        self._journal.close()

    def _append(self, entry: Mapping[str, Any]) -> None:
        with self._mutex, self._unharmed():
            self._unwritten.append({**entry, "at": _now()})
            self._write()

    def _write(self) -> None:
        """Write what the journal lacks: the last entry, and others if a disk was full."""
        with self._mutex:
            if self._unwritten:
                self._journal.append(*self._unwritten)
                self._unwritten.clear()

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Say that the journal cannot be written, and go on: the training is worth more."""
        try:
            yield
        except OSError as error:
            logger.warning("cannot write %s: %s", self._journal.path, error.strerror or error)

    def _last_step(self, name: str) -> float:
        return self._last_steps.get(name, -math.inf)

    def _start_sender(self) -> "Sender":
        sender = Sender(Delivery(Journal(self._journal.path), self._tracking.uri))
        sender.start()
        # A run that is dropped without an end, as when training fails, is sent once more.
        weakref.finalize(self, sender.leave)
        return sender

    def _wait(self) -> bool:
        """Return whether nothing waits any more, after at most the time that was granted."""
        began, failed_before = time.monotonic(), self._sender.n_failures
        while True:
            if self.is_sent():
                return True
            has_failed = self._sender.n_failures > failed_before
            if time.monotonic() - began > self._tracking.seconds_to_wait(has_failed):
                return False
            time.sleep(0.02)


def _now() -> int:
    return time.time_ns() // 1_000_000
