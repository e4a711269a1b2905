"""From a run's journal to MLflow: every entry once, in order, whenever the store is there."""

import logging
import math
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import mlflow
from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException

from storage.errors import StoreUnavailable
from storage.run_journal import Entry, Heading, Journal
from storage.tracking_store import experiment_number, open_client, told

logger = logging.getLogger(__name__)

BATCH = 1000
FINAL_STATES = ("FINISHED", "FAILED", "KILLED")
# An entry that the store refuses in these words would be refused again.
REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST")
RUN_IS_GONE = "RESOURCE_DOES_NOT_EXIST"
SECONDS_BETWEEN_SENDINGS = 5.0
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


class Delivery:
    """Brings what waits in a journal to MLflow, every entry once and in order.

    A process may die between the store's answer and the note of it, and an answer may get lost. So
    every new connection asks the store for the last step of each metric, and leaves out what it
    has; parameters, tags and states may be set twice. A request that is answered too late to be
    waited for may still be carried out after that question: then the entry goes out twice with the
    same step, value and time, which is one row of MLflow's tables.
    """

    def __init__(self, journal: Journal, uri: str) -> None:
        self.journal = journal
        self.run_id: str | None = None
        self.n_sent = 0
        self.was_answered = False
        self._uri = uri
        self._client: mlflow.MlflowClient
        self._experiment_id = ""
        self._status = ""
        self._last_steps: dict[str, int] = {}
        self._one_by_one_to = 0
        self._may_have_twin = False

    def send(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Send what waits; StoreUnavailable if the store does not take it now.

        Only who holds the right to send the journal may call this.
        """
        self.journal.read()
        while self.journal.waiting and not is_stopped():
            with told(self._uri):
                try:
                    if self.run_id is None:
                        self._connect()
                    self._send_next()
                except BaseException:
                    self.run_id = None
                    raise
            self.journal.read()

    def _connect(self) -> None:
        """Find the run, or begin it, and learn what the store has of it."""
        heading = self.journal.heading
        assert heading is not None
        self._client = open_client(self._uri, self.journal.path.parent)
        self._experiment_id = experiment_number(
            self._client, self._uri, heading.experiment, heading.artifacts
        )
        self.was_answered = True
        runs = self._runs()
        noted = [run for run in runs if run.info.run_id == self.journal.run_id]
        begun = [run for run in runs if run.data.metrics]
        run = next(iter([*noted, *begun, *runs]), None) or self._begin(heading)
        self._remove_twins(run.info.run_id, runs)
        self._status = run.info.status
        self._last_steps = {metric.key: metric.step for metric in run.data.to_proto().metrics}
        self.run_id = run.info.run_id
        if self.journal.run_id not in (None, self.run_id):
            self.journal.rewind(self.run_id)

    def _runs(self) -> list[Run]:
        assert self.journal.heading is not None
        identity = self.journal.heading.identity
        quote = '"' if "'" in identity else "'"
        return list(
            self._client.search_runs(
                [self._experiment_id],
                f"tags.identity = {quote}{identity}{quote}",
                run_view_type=ViewType.ACTIVE_ONLY,
                order_by=["attributes.start_time ASC"],
            )
        )

    def _begin(self, heading: Heading) -> Run:
        may_have_twin, self._may_have_twin = self._may_have_twin, True
        run = self._client.create_run(
            self._experiment_id,
            start_time=heading.started,
            run_name=heading.name,
            tags={**heading.tags, "identity": heading.identity},
        )
        self._may_have_twin = may_have_twin
        return run

    def _remove_twins(self, run_id: str, runs: list[Run]) -> None:
        """Remove the empty runs that requests without an answer have begun beside the true one."""
        heading = self.journal.heading
        for run in runs:
            is_empty = not run.data.metrics and not run.data.params
            is_ours = heading is not None and run.info.start_time == heading.started
            if is_empty and is_ours and run.info.run_id != run_id:
                self._client.delete_run(run.info.run_id)

    def _send_next(self) -> None:
        batch = self._next_batch()
        run_id, refusal = self.run_id, None
        assert run_id is not None
        try:
            self._submit(run_id, batch)
        except MlflowException as error:
            if error.error_code not in (*REFUSALS, RUN_IS_GONE):
                raise
            self._connect()
            if self.run_id != run_id:
                return  # it was deleted; all of the journal goes to its successor
            if error.error_code == RUN_IS_GONE:
                raise
            if len(batch) > 1:
                self._one_by_one_to = batch[-1].end
                return
            refusal = str(error).partition("\n")[0]
            logger.warning(
                "the tracking store refuses a line of %s: %s", self.journal.path, refusal
            )
        self.n_sent += len(batch)
        self.journal.note_sent(batch[-1], run_id, refusal)

    def _next_batch(self) -> list[Entry]:
        """Return the next entries that can go in one request."""
        batch: list[Entry] = []
        size = 0
        for entry in self.journal.waiting:
            size += len(entry.content.get("metrics", ()))
            alone = entry.kind != "metrics" or entry.end <= self._one_by_one_to
            if batch and (alone or size > BATCH):
                break
            batch.append(entry)
            if alone:
                break
        return batch

    def _submit(self, run_id: str, batch: list[Entry]) -> None:
        content, kind = batch[0].content, batch[0].kind
        if kind == "metrics":
            self._submit_metrics(run_id, batch)
        elif kind == "parameters":
            params = [Param(name, value) for name, value in content["parameters"].items()]
            self._client.log_batch(run_id, params=params)
        elif kind == "tags":
            tags = [RunTag(name, value) for name, value in content["tags"].items()]
            self._client.log_batch(run_id, tags=tags)
        elif kind == "file":
            self._submit_file(run_id, content)
        elif kind == "status":
            self._submit_status(run_id, content["status"], content["at"])
        else:
            raise MlflowException.invalid_parameter_value("the line cannot be read")

    def _submit_metrics(self, run_id: str, batch: list[Entry]) -> None:
        last_steps, metrics = dict(self._last_steps), []
        for entry in batch:
            step, at = entry.content["step"], entry.content["at"]
            for name, value in entry.content["metrics"].items():
                if step > last_steps.get(name, -math.inf):
                    metrics.append(Metric(name, value, at, step))
                    last_steps[name] = step
        self._client.log_batch(run_id, metrics=metrics)
        self._last_steps = last_steps

    def _submit_file(self, run_id: str, content: Mapping[str, Any]) -> None:
        target, kept = PurePosixPath(content["file"]), self.journal.files / content["content"]
        if not kept.is_file():
            raise MlflowException.invalid_parameter_value(f"the content of {target} is gone")
        parent = None if target.parent == PurePosixPath(".") else str(target.parent)
        with tempfile.TemporaryDirectory() as folder:
            named = Path(folder) / target.name
            named.write_bytes(kept.read_bytes())
            self._client.log_artifact(run_id, str(named), parent)

    def _submit_status(self, run_id: str, status: str, at: int) -> None:
        if status == "RUNNING":
            if self._status != status:
                self._client.update_run(run_id, status=status)
        else:
            self._client.set_terminated(run_id, status, end_time=at)
            if self._may_have_twin:
                self._remove_twins(run_id, self._runs())
                self._may_have_twin = False
        self._status = status


class Sender(threading.Thread):
    """A thread that sends a journal as it grows, waits while the store is away, and tries again."""

    def __init__(self, delivery: Delivery) -> None:
        super().__init__(name=f"send {delivery.journal.path.stem}", daemon=True)
        self.delivery = delivery
        self.n_failures = 0
        self._is_away = False
        self._grown = threading.Event()
        self._hurried = threading.Event()
        self._leaving = threading.Event()
        self._stopped = threading.Event()

    def send_soon(self) -> None:
        """Send what waits, unless a pause after a failure is under way."""
        self._grown.set()

    def hurry(self) -> None:
        """Send what waits now, and after failures try again without long pauses."""
        self._grown.set()
        self._hurried.set()

    def leave(self) -> None:
        """End after one more attempt."""
        self._leaving.set()
        self.hurry()

    def stop(self) -> None:
        """End after the request that is under way."""
        self._stopped.set()
        self.leave()

    def run(self) -> None:
        """Send until the run has ended or the thread is to."""
        try:
            while not self._stopped.is_set():
                with self.delivery.journal.sending() as is_ours:
                    if is_ours:
                        self._send_until_ended()
                        return
                # Who holds the lock sends our entries too; we follow when it lets go.
                if self._leaving.wait(1.0):
                    return
        except OSError as error:
            logger.warning("cannot read %s: %s", self.delivery.journal.path, error)
        finally:
            self.delivery.journal.close()

    def _send_until_ended(self) -> None:
        pause = SHORTEST_PAUSE
        while True:
            is_last = self._leaving.is_set()
            self._grown.clear()
            has_failed = not self._try()
            if self.delivery.journal.remove_if_ended() or is_last or self._stopped.is_set():
                return
            if not has_failed:
                pause = SHORTEST_PAUSE
                self._grown.wait(SECONDS_BETWEEN_SENDINGS)
            elif self._hurried.wait(pause):
                self._leaving.wait(SHORTEST_PAUSE)
            else:
                pause = min(2 * pause, LONGEST_PAUSE)

    def _try(self) -> bool:
        try:
            self.delivery.send(self._stopped.is_set)
        except StoreUnavailable as error:
            if not self._is_away:
                logger.warning("%s; entries wait in %s", error, self.delivery.journal.path)
            self._is_away = True
            self.n_failures += 1
            return False
        if self._is_away:
            logger.info("the tracking store is back and has %s", self.delivery.journal.path)
        self._is_away = False
        return True
