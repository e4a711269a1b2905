"""Train one experiment: data from the store, checkpoints and metrics into it."""

import resource
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from safetensors.torch import save

from flows.steps.results import begun_in, keep_begun, keep_result, keep_traceback, result_in
from flows.steps.training.devices import choose_device, device_name, gpu_uuids, joined_ranks
from flows.steps.training.fields import split_fields
from flows.steps.training.isolation import Report
from flows.steps.training.provenance import made_by
from flows.steps.training.run_record import finished_record, now, unfinished_record
from flows.steps.training.saving import Writer
from flows.steps.training.showcase import (
    SHOWN_SAMPLES,
    WORST_SAMPLES,
    chosen_arrays,
    showcase_arrays,
)
from flows.steps.training.starting import starting_weights
from flows.steps.training.workplace import Workplace, selected_weights
from lsm_core.evaluation.cost import forward_flops
from lsm_core.evaluation.samples import worst_samples
from lsm_core.experiments.experiment import BoundExperiment
from lsm_core.experiments.trial import Trial
from lsm_core.layers.ranks import gathered, n_ranks, rank
from lsm_core.result import Begun, DatasetName, Epoch, Result
from lsm_core.training.loop import Diverged, EpochReport
from lsm_core.training.number_formats import number_formats
from lsm_core.training.state import Snapshot, host_copy
from storage.datasets.reader import Dataset, open_dataset
from storage.datasets.schema import environment
from storage.errors import StorageError
from storage.tracking.echo import Echo, Status

SECONDS_BETWEEN_CHECKPOINTS = 20.0
BATCHES_BETWEEN_AGREEMENTS = 20
"""Several ranks save together; asking the first one after every batch would slow them down."""


def train(cell: BoundExperiment, place: Workplace, report: Report) -> Result:
    """Train, evaluate and record one experiment; continue where a killed run had come to."""
    torch.set_num_threads(place.n_threads)
    device = choose_device(place.slot.device)
    with joined_ranks(device):
        sizes = {str(split): size for split, size in cell.data.split_sizes.items()}
        dataset = open_dataset(place.dataset).first(sizes)
        checkpoints = place.checkpoints(cell.identity)
        result: Result | None = gathered(result_in(checkpoints) if rank() == 0 else None)[0]
        echo = _RunEcho(cell, place, dataset, device) if rank() == 0 else None
        if result is None:
            with _mark_end(echo):
                with Writer() as writer:
                    run = _Run(cell, place, dataset, device, echo, report, writer)
                    run.train_to_the_end()
                result = gathered(run.conclude() if rank() == 0 else None)[0]
        assert result is not None
        if echo is not None:
            echo.finish(result)
        return result


class _RunEcho:
    """What MLflow hears of a run; only the first rank speaks."""

    def __init__(
        self, cell: BoundExperiment, place: Workplace, dataset: Dataset, device: torch.device
    ) -> None:
        self.checkpoints = place.checkpoints(cell.identity)
        self.echo = Echo(place.tracking(), load=True, gpus=gpu_uuids(device))
        self.suites = {cell.outcome(place.study).suite}
        """Another suite may have begun it."""
        self.begun = Begun(
            **vars(cell.outcome(place.study, place.setting)),
            device=device_name(device),
            dataset=DatasetName(name=dataset.location.name, digest=dataset.digest),
            code=cell.code,
            settings=cell.experiment.to_plain(),
            started=now(),
        )
        self.sent: Sequence[Epoch] = ()

    def update(self, history: Sequence[Epoch]) -> None:
        """Send the epochs that a checkpoint holds; a run never goes back behind it."""
        self.begun = keep_begun(self.checkpoints, self.begun)
        self.sent = tuple(history)
        self.echo.update(unfinished_record(self.begun, self.sent, suites=self.suites))

    def mark(self, status: Status) -> None:
        """Close the run as failed or killed; another try opens it again."""
        where = traceback.format_exc().encode() if status == "FAILED" else None
        if where is not None:
            with suppress(StorageError):  # what it tells of may be that the store is away
                keep_traceback(self.checkpoints, where)
        self.echo.finish(unfinished_record(self.begun, self.sent, status, traceback=where))

    def finish(self, result: Result) -> None:
        """Bring the run up to its result."""
        self.echo.finish(finished_record(result, begun_in(self.checkpoints), self.suites))


@contextmanager
def _mark_end(echo: _RunEcho | None) -> Iterator[None]:
    """Tell MLflow of any error, and of an end from outside."""
    try:
        yield
    except BaseException as error:
        if echo is not None:
            echo.mark("FAILED" if isinstance(error, Exception) else "KILLED")
        raise


class _Run:
    """A trial between the store and its record: read, reported, saved and concluded."""

    def __init__(
        self,
        cell: BoundExperiment,
        place: Workplace,
        dataset: Dataset,
        device: torch.device,
        echo: _RunEcho | None,
        report: Report,
        writer: Writer,
    ) -> None:
        """Build the trial, or bring it to where its latest checkpoint is."""
        self.cell, self.place, self.dataset, self.device = cell, place, dataset, device
        self.echo, self.report, self.writer = echo, report, writer
        self.checkpoints = place.checkpoints(cell.identity)
        source = cell.source_identity
        self.trial = Trial(
            cell.experiment,
            split_fields(dataset, cell.benchmark, cell.training, cell.seed, place.memory, device),
            device,
            starting_weights(cell, selected_weights(place.checkpoints(source))) if source else None,
        )
        content = self.checkpoints.latest()
        if content is not None:
            self.trial.restore(content, self.checkpoints.best)
        if echo is not None:
            self._tell(f"on {device_name(device)}")
            echo.update(self.trial.history)
        self.saved_best = self.trial.best
        self.saved = self.epoch_began = time.perf_counter()

    def train_to_the_end(self) -> None:
        """Train, and save what a run that is killed goes on from."""
        try:
            for happened in self.trial.fit():
                if isinstance(happened, EpochReport):
                    self._end_epoch(happened)
                elif self._is_save_due():
                    self._save()
            if self.trial.is_ready:
                self._save()
        except Diverged:
            self._save()
            raise
        except torch.OutOfMemoryError as error:
            raise ValueError(
                f"no room for a batch of {self.cell.training.batch_size} on "
                f"{device_name(self.device)}: {str(error).splitlines()[0]}; train in parts with "
                "--accumulation 2 or more, which changes nothing but batch statistics"
            ) from error

    def _end_epoch(self, ended: EpochReport) -> None:
        seconds = time.perf_counter() - self.epoch_began
        epoch = Epoch(
            epoch=ended.epoch,
            train=ended.train_loss,
            **self.trial.measure(ended.epoch),
            learning_rate=ended.learning_rate,
            seconds=seconds,
            samples_per_second=self.trial.fields.batches.n_samples / seconds,
            peak_bytes=_peak_bytes(self.device),
            at=now(),
        )
        self.trial.history.append(epoch)
        n_epochs = self.cell.training.epochs
        if self.echo is not None:
            error = epoch.train if epoch.validation is None else epoch.validation
            self._tell(f"relative L2 {error:.4f}")
        if self._is_save_due() or epoch.epoch == n_epochs:
            self._save()
        self.epoch_began = time.perf_counter()

    def _tell(self, note: str) -> None:
        done, total = self.trial.state.epoch, self.cell.training.epochs
        self.report({"done": done, "total": total, "note": note})

    def _is_save_due(self) -> bool:
        """Return whether it is time for a checkpoint; the first rank decides. Collective."""
        passed = time.perf_counter() - self.saved
        due = passed > SECONDS_BETWEEN_CHECKPOINTS and not self.writer.is_busy()
        if n_ranks() == 1:
            return due
        ask = self.trial.state.batch % BATCHES_BETWEEN_AGREEMENTS == 0
        return ask and bool(gathered(due)[0])

    def _save(self) -> None:
        """Begin to save the trial as it is now; the first rank writes. Collective."""
        snapshot = self.trial.snapshot()
        if self.echo is not None:
            best = None
            if self.trial.best != self.saved_best:
                best, self.saved_best = host_copy(self.trial.best_weights), self.trial.best
            history = tuple(self.trial.history)
            self.writer.begin(partial(self._write, self.trial.step, snapshot, best, history))
        self.saved = time.perf_counter()

    def _write(
        self,
        step: int,
        snapshot: Snapshot,
        best: Mapping[str, torch.Tensor] | None,
        history: Sequence[Epoch],
    ) -> None:
        """Write a checkpoint, then tell of what it holds; in the writer's thread."""
        assert self.echo is not None
        if best is not None:
            self.checkpoints.save_best(save(dict(best)))
        self.checkpoints.save(step, snapshot.to_bytes())
        self.echo.update(history)

    def conclude(self) -> Result:
        """Evaluate the chosen weights, keep the result and return it."""
        trial = self.trial
        trial.select_weights()
        shown = trial.predict_first(SHOWN_SAMPLES).numpy()
        self.checkpoints.write_arrays(
            "showcase", showcase_arrays(self.cell.benchmark, self.dataset, shown)
        )
        self._keep_sample_errors()
        result = Result(
            **vars(self.cell.outcome(self.place.study, self.place.setting)),
            validation=trial.figures("validation"),
            test=trial.figures("test"),
            parameters=trial.n_parameters,
            mean_prediction=trial.error_of_the_mean(),
            seconds_per_epoch=median([epoch.seconds for epoch in trial.history] or [0.0]),
            peak_bytes=max(
                (epoch.peak_bytes for epoch in trial.history), default=_peak_bytes(self.device)
            ),
            epochs=trial.state.epoch,
            n_train=trial.fields.batches.n_samples,
            updates=trial.step,
            samples_seen=trial.state.epoch * trial.fields.batches.n_samples,
            flops=_training_flops(trial, self.device),
            selection=trial.config.selection,
            best=trial.best,
            begun_anew=trial.begun_anew,
            history=tuple(trial.history),
            dataset=DatasetName(name=self.dataset.location.name, digest=self.dataset.digest),
            code=self.cell.code,
            settings=self.cell.experiment.to_plain(),
            environment={
                **environment(),
                **number_formats(),
                "device": device_name(self.device),
                "ranks": n_ranks(),
                "threads": self.place.n_threads,
                "samples_in_memory": trial.fields.in_memory,
                **made_by(),
            },
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        keep_result(self.checkpoints, result)
        return result

    def _keep_sample_errors(self) -> None:
        """Keep the error of every test sample, and the worst of them as they were predicted."""
        errors: dict[str, np.ndarray] = {
            name: values.numpy() for name, values in self.trial.sample_errors("test").items()
        }
        if not errors:
            return
        worst = worst_samples(errors, WORST_SAMPLES)
        predicted = self.trial.predict_samples("test", worst).numpy()
        self.checkpoints.write_arrays(
            "worst", chosen_arrays(self.cell.benchmark, self.dataset, worst, predicted)
        )
        # Their run's name, so that errors of another are noticed.
        errors["identity"] = np.array(self.cell.identity)
        self.checkpoints.write_arrays("errors", errors)


def _training_flops(trial: Trial, device: torch.device) -> float:
    """Return the operations of the whole training: a backward pass is two forward ones."""
    sample = next(iter(trial.fields.parts["train"])).inputs[:1].to(device)
    n_passes = 3 * trial.state.epoch * trial.fields.batches.n_samples
    return float(n_passes * forward_flops(trial.surrogate.eval(), sample))


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
