"""The echo of a run in MLflow: what the store holds of it, sent until MLflow has it.

Sending asks MLflow what it has and sends the rest. All that is sent is in the store first, metrics
with the time at which they were measured: whoever sends the same again, at the same time or after
an answer got lost, adds nothing, since equal points are one row of MLflow's tables. So nothing has
to be remembered of what was sent, and any process may send any run.

Runs are flat and tagged, never nested: MLflow's charts of a list of runs then fill by themselves.
"""

import hashlib
import io
import json
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    Metric,
    Param,
    Run,
    RunTag,
    ViewType,
)
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_IMAGES

from storage.credentials import without_credentials
from storage.errors import StorageError
from storage.tracking.store import Tracking

logger = logging.getLogger(__name__)

POINTS_AT_ONCE, NAMES_AT_ONCE = 1000, 100
"""What MLflow takes in one request."""
DIGEST_LENGTH = 16
"""How much of a dataset's hash names it in MLflow, which has room for 36 signs."""
PICTURES, HAS_PICTURES = "images", MLFLOW_LOGGED_IMAGES
"""Where MLflow keeps pictures, and the tag that it sets when it has one."""
FILES = "files"
"""The tag that says which files a run has; set when all of them are there."""
# What the store refuses in these words it would refuse again.
REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST")
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
SECONDS_BETWEEN_LOADS = 5.0

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True, kw_only=True)
class UsedDataset:
    """A dataset that a run was trained and tested on, as MLflow names those."""

    name: str
    digest: str
    place: str
    """Where it lies, below the root of the store."""
    profile: Mapping[str, int] = field(default_factory=dict)
    """How many samples each part has."""

    def as_input(self) -> DatasetInput:
        """Return it as an input of a run."""
        return DatasetInput(
            Dataset(
                name=self.name,
                digest=self.digest[:DIGEST_LENGTH],
                source_type="zarr",
                source=json.dumps({"path": self.place}),
                profile=json.dumps(dict(self.profile)),
            ),
            [InputTag("mlflow.data.context", "train and test")],
        )


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """All that MLflow is to have of a run; times are in milliseconds since 1970."""

    identity: str
    """What the run is found by; there is one run of an identity in an experiment."""
    experiment: str = ""
    """Where it is; in the experiment of the tracking store if none is named."""
    name: str
    started: int
    tags: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    points: Sequence[Metric] = ()
    """Metrics, those of each name in the order of their steps."""
    replaces: bool = False
    """Whether a point of another value takes the place of one at the same step."""
    datasets: Sequence[UsedDataset] = ()
    status: Status | None = None
    """None leaves it as it is."""
    ended: int | None = None
    files: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    """Names, and what makes the contents, which is asked only if MLflow lacks them."""
    pictures: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    """Likewise pictures, as PNG, which the page of charts shows side by side."""
    files_version: str = "1"
    """Another one makes the files replace those that are there."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What MLflow lacked of a run and has now."""

    run_id: str
    is_new: bool
    n_points: int
    n_names: int
    """Tags, parameters, datasets and changes of state."""
    n_files: int

    @property
    def anything(self) -> bool:
        """Return whether MLflow lacked anything."""
        return self.is_new or bool(self.n_points or self.n_names or self.n_files)


def send(tracking: Tracking, record: RunRecord) -> Sent:
    """Send what MLflow lacks of a run, and return how much that was; or StoreUnavailable.

    One at a time, over all who share the store: two that train the same run, one of them taken for
    dead, have measured it at other times, and would both find that MLflow lacks it.
    """
    tracking = tracking.at(record.experiment)
    name = hashlib.sha256(record.identity.encode()).hexdigest()[:16]
    with tracking.reached(), tracking.leases.hold(f"echo-{name}"):
        run, is_new = _find_or_begin(tracking, record)
        target = _Target(tracking, run)
        points = _lacking(run, record)
        known = run.data.params
        parameters = [Param(k, v) for k, v in record.parameters.items() if k not in known]
        tags = [RunTag(k, v) for k, v in record.tags.items() if run.data.tags.get(k) != v]
        target.log("tags", tags, NAMES_AT_ONCE)
        target.log("params", parameters, NAMES_AT_ONCE)
        target.log("metrics", points, POINTS_AT_ONCE)
        known_inputs = run.inputs.dataset_inputs if run.inputs else []
        used = {(each.dataset.name, each.dataset.digest) for each in known_inputs}
        inputs = [each.as_input() for each in record.datasets]
        inputs = [i for i in inputs if (i.dataset.name, i.dataset.digest) not in used]
        if inputs:
            tracking.client.log_inputs(run.info.run_id, inputs)
        is_changed = record.status not in (None, run.info.status)
        if is_changed:
            _set_status(tracking, run, record)
    n_files = _send_files(tracking, run, record)
    return Sent(
        run_id=run.info.run_id,
        is_new=is_new,
        n_points=len(points),
        n_names=len(tags) + len(parameters) + len(inputs) + is_changed,
        n_files=n_files,
    )


def send_within_patience(tracking: Tracking, record: RunRecord) -> bool:
    """Send a whole run; return whether MLflow has it before the patience of the store ends."""
    return Echo(tracking).finish(record)


def runs_of(tracking: Tracking, identity: str) -> list[Run]:
    """Return the runs of an identity, the one that counts first.

    There are several if two processes began it at once, or if one was begun by a request whose
    answer got lost. Everybody chooses the same.
    """
    quote = '"' if "'" in identity else "'"
    found = tracking.client.search_runs(
        [tracking.experiment_id],
        f"tags.identity = {quote}{identity}{quote}",
        run_view_type=ViewType.ACTIVE_ONLY,
    )
    return sorted(found, key=lambda r: (not r.data.metrics, r.info.start_time, r.info.run_id))


def _lacking(run: Run, record: RunRecord) -> list[Metric]:
    """Return the points that a run does not have."""
    last = {metric.key: metric for metric in run.data.to_proto().metrics}

    def is_lacking(point: Metric) -> bool:
        known = last.get(point.key)
        if known is None or point.step > known.step:
            return True
        return record.replaces and point.step == known.step and point.value != known.value

    return [point for point in record.points if is_lacking(point)]


def _find_or_begin(tracking: Tracking, record: RunRecord) -> tuple[Run, bool]:
    found, client = runs_of(tracking, record.identity), tracking.client
    is_new = not found
    if is_new:
        client.create_run(
            tracking.experiment_id,
            start_time=record.started,
            run_name=record.name,
            tags={"identity": record.identity},
        )
        found = runs_of(tracking, record.identity)  # another may have begun it meanwhile
    run, *twins = found
    for twin in twins:
        client.delete_run(twin.info.run_id)
    return run, is_new


@dataclass(frozen=True)
class _Target:
    tracking: Tracking
    run: Run

    def log(self, kind: str, entries: Sequence[Any], at_once: int) -> None:
        """Log tags, parameters or metrics; what MLflow refuses holds up nothing else."""
        remaining = iter(entries)
        while batch := list(islice(remaining, at_once)):
            try:
                content: Any = {kind: batch}
                self.tracking.client.log_batch(self.run.info.run_id, **content)
            except MlflowException as error:
                if error.error_code not in REFUSALS or not self._is_there():
                    raise
                if len(batch) > 1:
                    self.log(kind, batch, (len(batch) + 1) // 2)
                    continue
                said = str(error).partition("\n")[0]
                name = self.run.info.run_name
                logger.warning("the tracking store refuses a part of %s: %s", name, said)

    def _is_there(self) -> bool:
        """Return whether the run is still to be had: one that was deleted is begun anew."""
        found = self.tracking.client.get_run(self.run.info.run_id)
        return bool(found.info.lifecycle_stage == "active")


def _set_status(tracking: Tracking, run: Run, record: RunRecord) -> None:
    if record.status == "RUNNING":
        tracking.client.update_run(run.info.run_id, status=record.status)
    else:
        tracking.client.set_terminated(run.info.run_id, record.status, end_time=record.ended)


def _send_files(tracking: Tracking, run: Run, record: RunRecord) -> int:
    if not (record.files or record.pictures) or (run.data.tags.get(FILES) == record.files_version):
        return 0
    there = {} if FILES in run.data.tags else _known_files(tracking, run)
    for name, made in record.files.items():
        content = made()
        if there.get(name) == len(content):
            continue  # whoever sent it was killed before the end
        with tracking.reached(), tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / name
            file.write_bytes(content)
            tracking.client.log_artifact(run.info.run_id, str(file))
    for name, made in record.pictures.items():
        if HAS_PICTURES in run.data.tags and any(f"/{name}+step+" in path for path in there):
            continue  # MLflow would add it once more
        content = made()
        with tracking.reached():
            # Pillow is MLflow's way to take a picture; it takes long to import.
            from PIL import Image

            picture = Image.open(io.BytesIO(content))
            tracking.client.log_image(run.info.run_id, picture, key=name, step=0)
    with tracking.reached():
        tracking.client.set_tag(run.info.run_id, FILES, record.files_version)
    return len(record.files) + len(record.pictures)


def _known_files(tracking: Tracking, run: Run) -> dict[str, int | None]:
    """Return the sizes of the files that MLflow has of a run, by path."""
    with tracking.reached():
        listed = [tracking.client.list_artifacts(run.info.run_id, at) for at in (None, PICTURES)]
    return {each.path: each.file_size for entries in listed for each in entries}


class Echo:
    """Sends the record of one run in the background, as it grows: a run never waits for MLflow.

    One thread does the sending. While MLflow is away it tries again with growing pauses (backoff),
    and what comes meanwhile is in the next record, for a record is always the whole run. With
    `load`, MLflow's own monitor records the load of this machine while the run is under way, and of
    these `gpus`, named by their UUIDs.
    """

    def __init__(self, tracking: Tracking, *, load: bool = False, gpus: Sequence[str] = ()) -> None:
        self.n_failures = 0
        self.run_id: str | None = None
        """MLflow's name of the run, None while MLflow does not have it."""
        self._tracking = tracking
        self._load = MachineLoad(tracking.uri, gpus) if load else None
        self._wanted: RunRecord | None = None
        self._sent: RunRecord | None = None
        self._changed = threading.Condition()
        self._is_hurried = self._is_over = False
        self._thread: threading.Thread | None = None

    def update(self, record: RunRecord) -> None:
        """Let MLflow have this record in place of the one before; returns at once."""
        with self._changed:
            self._wanted = record
            self._changed.notify_all()
        if self._thread is None:
            name = f"echo {record.identity}"
            self._thread = threading.Thread(target=self._send_all, name=name, daemon=True)
            self._thread.start()

    def is_sent(self) -> bool:
        """Return whether MLflow has the last record."""
        return self._sent is self._wanted

    def finish(self, record: RunRecord) -> bool:
        """Send the last record, wait a bounded time for that, and return whether MLflow has it.

        Otherwise `lsm runs sync` sends it from the store.
        """
        began, failed_before = time.monotonic(), self.n_failures
        with self._changed:
            self._is_hurried = True
        self.update(record)
        with self._changed:
            while not self.is_sent():
                limit = self._tracking.seconds_to_wait(self.n_failures > failed_before)
                left = began + limit - time.monotonic()
                if left <= 0:
                    logger.warning(
                        "%s does not have all of %s yet; `lsm runs sync` sends it from the store",
                        without_credentials(self._tracking.uri),
                        record.name,
                    )
                    break
                self._changed.wait(min(left, 1.0))
            is_sent = self.is_sent()
        self.close()
        return is_sent

    def close(self) -> None:
        """Stop sending and leave the run as it is."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread is not None:
            # It may hang in a request to a server that hangs; then it ends with that, by itself. If
            # that has answered so far, the last load is awaited: a run that goes on counts from it.
            self._thread.join(timeout=2.0 if self.n_failures else 10.0)

    def _send_all(self) -> None:
        for record in self._records():
            try:
                sent = send(self._tracking, record)
            except StorageError as error:
                if not self.n_failures:
                    logger.warning("%s; the run goes on, and is sent later", error)
                self._note(failed=True)
                continue
            self.run_id = sent.run_id
            self._note(record)
            if self._load is not None and record.status == "RUNNING":
                self._load.watch(sent.run_id)
        if self._load is not None:
            self._load.end()

    def _records(self) -> Iterator[RunRecord]:
        """Yield the record to send, whenever there is one and no pause is under way."""
        pause = SHORTEST_PAUSE
        while True:
            failures = self.n_failures
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or not self.is_sent())
                if self._is_over or self._wanted is None:
                    return
                record = self._wanted
            yield record
            with self._changed:
                if self.n_failures == failures:
                    pause = SHORTEST_PAUSE
                    continue
                self._changed.wait_for(lambda: self._is_over or self._is_hurried, pause)
                if self._is_hurried:
                    self._changed.wait_for(lambda: self._is_over, SHORTEST_PAUSE)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _note(self, sent: RunRecord | None = None, *, failed: bool = False) -> None:
        with self._changed:
            self.n_failures += failed
            self._sent = sent or self._sent
            self._changed.notify_all()


class MachineLoad:
    """What a training does to its machine, recorded by MLflow's own monitor.

    That monitor ends when the store fails once; it is begun again when the store is back. What it
    had not sent is lost, which curves of a run are not.
    """

    def __init__(self, uri: str, gpus: Sequence[str] = ()) -> None:
        self._uri, self._gpus = uri, gpus
        self._monitor: Any = None
        self._is_impossible = False

    def watch(self, run_id: str) -> None:
        """Begin, unless it is under way."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        # It tells when it begins and ends, and that a store is away, which we say, too.
        logging.getLogger("mlflow.system_metrics").setLevel(logging.CRITICAL)
        if self._is_impossible or (self._monitor and self._monitor._process.is_alive()):
            return
        try:
            monitor = SystemMetricsMonitor(
                run_id,
                sampling_interval=SECONDS_BETWEEN_LOADS,
                resume_logging=True,
                tracking_uri=self._uri,
            )
            self._watch_own_gpus(monitor)
            monitor.collect_metrics()  # its thread would die of what a machine does not tell
            monitor.start()
            self._monitor = monitor
        except Exception as error:
            self._is_impossible = True
            logger.warning("the load of this machine is not recorded: %s", error)

    def _watch_own_gpus(self, monitor: Any) -> None:
        """Let a monitor look at no GPUs but the run's; others' load would be taken for its own."""
        from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

        for part in list(monitor.monitors):
            if isinstance(part, GPUMonitor):
                import pynvml

                part.gpu_handles = []
                with suppress(pynvml.NVMLError):  # it does not know parts of a GPU (MIG) by name
                    for gpu in self._gpus:
                        part.gpu_handles.append(pynvml.nvmlDeviceGetHandleByUUID(gpu))
                part.num_gpus = len(part.gpu_handles)

    def end(self) -> None:
        """Send the last sample, so that the shortest run has one, and end."""
        if self._monitor is None:
            return
        try:
            self._monitor.finish()
            self._monitor.publish_metrics(self._monitor.aggregate_metrics())
            self._monitor.mlflow_logger.flush()
        except Exception as error:
            logger.warning("the last load of this machine is not recorded: %s", error)
