"""Train one experiment: data from the store, checkpoints and metrics into it."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from flows.steps.devices import choose_device, joined_ranks, prepared
from flows.steps.fields import split_fields
from flows.steps.isolation import Report
from flows.steps.machine_load import recorded_load
from flows.steps.run_record import (
    epoch_metrics,
    log_outcome,
    result_head,
    run_name,
    run_parameters,
    run_tags,
)
from flows.steps.showcase import SHOWN_SAMPLES, showcase_arrays
from lsm_core.evaluation.evaluate import error_of_the_mean, evaluate, predict, relative_errors
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.measures import breakdown_of
from lsm_core.experiments.operator import build_operator
from lsm_core.layers.ranks import gathered, n_ranks, rank
from lsm_core.training.fine_tuning import adopt, freeze
from lsm_core.training.loop import BatchReport, Diverged, EpochReport, fit
from lsm_core.training.normalization import Moments, normalization
from lsm_core.training.state import model_weights, start_training
from lsm_core.training.surrogate import Surrogate
from storage.charts_page import suite_tag
from storage.checkpoints import Checkpoints
from storage.dataset_reader import open_dataset
from storage.location import Location
from storage.provenance import environment
from storage.run_journal import journal_folder
from storage.run_log import RunLog, Tracking

SECONDS_BETWEEN_CHECKPOINTS = 20.0
BATCHES_BETWEEN_AGREEMENTS = 20
"""Several ranks save together; asking the first one after every batch would slow them down."""
EVALUATION_BATCH = 100

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """Where a run finds its data and leaves its results; plain values that any process can take."""

    root: Location
    dataset: Location
    tracking_uri: str
    suite: str
    setting: str = ""
    """What the run is called in its suite, where model and benchmark do not tell."""
    n_threads: int
    device: str = "auto"
    memory: int = 2**32

    def checkpoints(self, experiment: Experiment) -> Checkpoints:
        """Return the folder of a run."""
        return Checkpoints(self.root / "checkpoints" / experiment.identity)

    def tracking(self) -> Tracking:
        """Return the tracking store."""
        return open_tracking(self.tracking_uri, self.root)


def open_tracking(uri: str, root: Location, experiment: str = "benchmark") -> Tracking:
    """Return the tracking store, made ready on first use."""
    return Tracking(uri, experiment, root / "artifacts", journal_folder(root))


def train(experiment: Experiment, place: Workplace, report: Report) -> dict[str, Any]:
    """Train, evaluate and record one experiment; continue where a killed run had come to."""
    torch.set_num_threads(place.n_threads)
    device = choose_device(place.device)
    with joined_ranks(device):
        run = _Run(experiment, place, device, report)
        if rank() == 0:
            run.open()
        result = gathered(run.checkpoints.result() if rank() == 0 else None)[0]
        if result is None:
            with run.told_if_it_fails(), recorded_load(run.log):
                run.train_to_the_end()
                result = gathered(run.conclude() if rank() == 0 else None)[0]
        if rank() == 0:
            run.close(result)
        return dict(result)


@dataclass
class _Best:
    """The weights of the epoch with the least error so far."""

    error: float = float("inf")
    epoch: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)
    is_saved: bool = True

    def offer(self, error: float | None, epoch: int, model: nn.Module) -> None:
        if error is None or not error < self.error:
            return
        self.error, self.epoch, self.is_saved = error, epoch, False
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}


class _Run:
    """One training run in one process, or the part of it that is this rank's."""

    def __init__(
        self, experiment: Experiment, place: Workplace, device: torch.device, report: Report
    ) -> None:
        self.experiment, self.place, self.device, self.report = experiment, place, device, report
        self.config, self.benchmark = experiment.training, experiment.data.benchmark
        self.checkpoints = place.checkpoints(experiment)
        sizes = {str(split): size for split, size in experiment.data.split_sizes.items()}
        self.dataset = open_dataset(place.dataset).first(sizes)
        self.log: RunLog | None = None
        self.history: list[Record] = []
        self.new_parts: list[str] = []
        self.best = _Best()

    def open(self) -> None:
        """Begin or continue the run's record; only the first rank keeps one."""
        name = run_name(self.experiment, self.place.setting)
        tags = run_tags(self.experiment, self.place.suite, self.place.setting, self.dataset)
        self.log = self.place.tracking().open_run(self.experiment.identity, name, tags)
        self.log.set_tags({suite_tag(self.place.suite): "yes"})  # another suite may have begun it
        self.log.set_parameters(run_parameters(self.experiment))

    @contextmanager
    def told_if_it_fails(self) -> Iterator[None]:
        """Close the record as failed on any error; another try opens it again."""
        try:
            yield
        except Exception:
            if self.log is not None:
                self.log.finish("FAILED")
            raise

    def train_to_the_end(self) -> None:
        """Train from the latest checkpoint, or from the start."""
        self.fields = split_fields(
            self.dataset, self.benchmark, self.config, self.experiment.seed, self.place.memory
        )
        self.targets = Moments.of(part.targets for part in self.fields.parts["train"])
        self.surrogate = prepared(self._untrained(), self.config, self.device)
        self.state = start_training(self.surrogate, self.config, len(self.fields.batches))
        self._restore()
        self.saved = self.started = time.perf_counter()
        try:
            for happened in fit(self.state, self.fields.batches, self.config):
                self._after(happened)
        except Diverged:
            self._save()
            raise

    def _untrained(self) -> Surrogate:
        """Return the model before training, with the statistics of the training samples."""
        torch.manual_seed(self.experiment.seed)
        operator = build_operator(self.experiment)
        inputs = Moments.of(part.inputs for part in self.fields.parts["train"])
        surrogate = Surrogate(
            operator,
            normalization(self.config.input_normalization, inputs),
            normalization(self.config.target_normalization, self.targets),
        )
        start = self.experiment.start
        if start is not None:
            source = Checkpoints(self.place.root / "checkpoints" / start.identity)
            self.new_parts = adopt(surrogate, selected_weights(source))
            freeze(surrogate, start.frozen)
        return surrogate

    def _restore(self) -> None:
        content = self.checkpoints.latest()
        if content is None:
            # Dropout must differ between ranks, weights must not.
            torch.manual_seed(self.experiment.seed + 7919 * rank())
            return
        notes = self.state.restore(content)
        self.history = notes["history"]
        if notes["best"]["epoch"]:
            self.best = _Best(**notes["best"], weights=load(self.checkpoints.best()))
        if self.log is not None:
            # The machine before this may be gone with its journal, and no step can be added later.
            for record in self.history:
                self.log.log(record["epoch"], epoch_metrics(record))

    def _after(self, happened: BatchReport | EpochReport) -> None:
        is_epoch = isinstance(happened, EpochReport)
        if isinstance(happened, EpochReport):
            self._record(happened)
        last = is_epoch and happened.epoch == self.config.epochs
        due = time.perf_counter() - self.saved > SECONDS_BETWEEN_CHECKPOINTS
        if n_ranks() > 1:
            ask = is_epoch or self.state.batch % BATCHES_BETWEEN_AGREEMENTS == 0
            due = ask and gathered(due)[0]
        if due or last:
            self._save()
        if is_epoch:
            self.started = time.perf_counter()

    def _record(self, epoch: EpochReport) -> None:
        seconds = time.perf_counter() - self.started
        errors = {}
        for split in ("validation", "test"):
            wanted = split == "validation" or self.config.selection == "best_test"
            parts = self.fields.parts[split]
            found = self._error_on(parts) if wanted else None
            if found is not None:
                errors[split] = found
        self.history.append(
            {
                "epoch": epoch.epoch,
                "train": epoch.train_loss,
                **errors,
                "learning_rate": epoch.learning_rate,
                "seconds": seconds,
                "samples_per_second": self.fields.batches.n_samples / seconds,
                "peak_bytes": _peak_bytes(self.device),
            }
        )
        judged = "test" if self.config.selection == "best_test" else "validation"
        self.best.offer(errors.get(judged), epoch.epoch, self.surrogate)
        if self.log is not None:
            self.log.log(epoch.epoch, epoch_metrics(self.history[-1]))
            error = errors.get("validation", epoch.train_loss)
            self.report({"done": epoch.epoch, "total": self.config.epochs, "error": error})

    def _error_on(self, parts: Any) -> float | None:
        errors = relative_errors(
            self.surrogate, parts, self._evaluation_batch, self.config.test_statistics
        )
        return errors.mean().item() if len(errors) else None

    @property
    def _evaluation_batch(self) -> int:
        """Return how many samples are measured together; it matters for batch statistics."""
        return (
            self.config.batch_size if self.config.test_statistics == "batch" else EVALUATION_BATCH
        )

    def _save(self) -> None:
        best = {"error": self.best.error, "epoch": self.best.epoch}
        content = self.state.to_bytes({"history": self.history, "best": best})
        if self.log is not None:
            # Metrics first: the run then never lacks a step that the checkpoint has passed.
            self.log.flush()
            if not self.best.is_saved:
                self.checkpoints.save_best(save(self.best.weights))
                self.best.is_saved = True
            step = self.state.epoch * len(self.fields.batches) + self.state.batch
            self.checkpoints.save(step, content)
        self.saved = time.perf_counter()

    def conclude(self) -> dict[str, Any]:
        """Evaluate the chosen weights, keep the result and return it."""
        if self.config.selection != "last" and self.best.epoch:
            self.surrogate.load_state_dict(self.best.weights)
        first = next(iter(self.fields.parts["test"])).inputs[:SHOWN_SAMPLES]
        shown = predict(self.surrogate, first, self._evaluation_batch, self.config.test_statistics)
        arrays = showcase_arrays(self.benchmark, self.dataset, shown.numpy())
        self.checkpoints.write_arrays("showcase", arrays)
        result = self._outcome()
        self.checkpoints.write_result(result)
        return result

    def _outcome(self) -> dict[str, Any]:
        """Return all that is known of a finished run, as plain data."""
        errors = {
            split: evaluate(
                self.surrogate,
                self.fields.parts[split],
                self._evaluation_batch,
                self.config.test_statistics,
                breakdown_of(self.benchmark),
            )
            for split in ("validation", "test")
        }
        return {
            **result_head(self.experiment),
            "suite": self.place.suite,
            "setting": self.place.setting,
            **errors,
            "parameters": sum(p.numel() for p in self.surrogate.parameters()),
            "mean_prediction": error_of_the_mean(self.targets.mean, self.fields.parts["test"]),
            "seconds_per_epoch": median(record["seconds"] for record in self.history),
            "peak_bytes": max(record["peak_bytes"] for record in self.history),
            "epochs": self.state.epoch,
            "n_train": self.fields.batches.n_samples,
            "selection": self.config.selection,
            "best": {"epoch": self.best.epoch, "error": self.best.error} if self.best.epoch else {},
            "begun_anew": self.new_parts,
            "history": self.history,
            "dataset": {"name": self.dataset.location.name, "digest": self.dataset.digest},
            "code": self.experiment.code,
            "settings": self.experiment.describe(),
            "environment": {
                **environment(),
                "device": str(self.device),
                "ranks": n_ranks(),
                "threads": self.place.n_threads,
                "samples_in_memory": self.fields.in_memory,
            },
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def close(self, result: dict[str, Any]) -> None:
        """Bring the run's record up to the result."""
        if self.log is not None:
            log_outcome(self.log, result)


def selected_weights(checkpoints: Checkpoints) -> dict[str, Tensor]:
    """Return the weights that are the result of a finished run, by name."""
    result = checkpoints.result()
    if result is None:
        raise ValueError(f"there is no finished run in {checkpoints.location} to start from")
    if result.get("selection", "last") != "last":
        return load(checkpoints.best())
    content = checkpoints.latest()
    if content is None:
        raise ValueError(f"the run in {checkpoints.location} has no weights to start from")
    return model_weights(content)


def _peak_bytes(device: torch.device) -> int:
    """Return the most memory in use so far: of the device, or of this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.exists():
        # The usual figure, ru_maxrss, begins with that of the parent process.
        line = next(line for line in status.read_text().splitlines() if "VmHWM" in line)
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
