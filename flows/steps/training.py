"""Train one experiment: data from the store, checkpoints and metrics into it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

import torch

from flows.steps.isolation import Report
from flows.steps.showcase import SHOWN_SAMPLES, showcase_arrays
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.evaluation.evaluate import error_of_the_mean, evaluate, predict
from lsm_core.experiments.data_plan import FIRST_SEED, Split
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.operator import build_operator
from lsm_core.problems.fields import stack_channels
from lsm_core.training.batches import Batches, Fields
from lsm_core.training.loop import EpochReport, fit
from lsm_core.training.normalization import fit_normalization
from lsm_core.training.state import TrainingState, start_training
from lsm_core.training.surrogate import Surrogate
from storage.checkpoints import Checkpoints
from storage.dataset_reader import Dataset, open_dataset
from storage.location import Location
from storage.provenance import environment
from storage.run_log import RunLog, Tracking

SECONDS_BETWEEN_CHECKPOINTS = 20.0
EVALUATION_BATCH = 100


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """Where a run finds its data and leaves its results; plain values that any process can take."""

    root: Location
    dataset: Location
    tracking_uri: str
    suite: str
    n_threads: int

    def checkpoints(self, experiment: Experiment) -> Checkpoints:
        """Return the folder of a run."""
        return Checkpoints(self.root / "checkpoints" / experiment.identity)

    def tracking(self) -> Tracking:
        """Return the tracking store."""
        return open_tracking(self.tracking_uri, self.root)


def open_tracking(uri: str, root: Location, experiment: str = "benchmark") -> Tracking:
    """Return the tracking store, made ready on first use."""
    return Tracking(uri, experiment, root / "artifacts")


def finished_result(experiment: Experiment, root: Location) -> dict[str, Any] | None:
    """Return the outcome of an experiment that was run before, or None."""
    return Checkpoints(root / "checkpoints" / experiment.identity).result()


def train(experiment: Experiment, place: Workplace, report: Report) -> dict[str, Any]:
    """Train, evaluate and record one experiment; continue where a killed run had come to."""
    torch.set_num_threads(place.n_threads)
    checkpoints = place.checkpoints(experiment)
    dataset = open_dataset(place.dataset)
    fields = {split: load_fields(dataset, experiment.data.benchmark, split) for split in FIRST_SEED}
    run = place.tracking().open_run(
        experiment.identity, _run_name(experiment), _tags(experiment, place.suite, dataset)
    )
    run.set_parameters(_parameters(experiment))
    result = checkpoints.result()
    if result is None:
        state, history = _train_to_the_end(experiment, fields, checkpoints, run, report)
        shown = predict(state.model, fields["test"].inputs[:SHOWN_SAMPLES], EVALUATION_BATCH)
        benchmark = experiment.data.benchmark
        arrays = showcase_arrays(benchmark, dataset, shown.numpy())
        checkpoints.write_arrays("showcase", arrays)
        result = _outcome(experiment, state, fields, dataset, history)
        checkpoints.write_result(result)
    log_outcome(run, result)
    return result


def load_fields(dataset: Dataset, benchmark: Benchmark, split: Split) -> Fields:
    """Return one part of a dataset as tensors."""
    names = [v.name for v in (*benchmark.with_role("input"), *benchmark.with_role("target"))]
    arrays = dataset.part(split, names)[:]
    space = dict(zip(benchmark.space, benchmark.shape.space, strict=True))
    inputs = stack_channels(arrays, benchmark.with_role("input"), space)
    targets = stack_channels(arrays, benchmark.with_role("target"), space)
    return Fields(torch.tensor(inputs), torch.tensor(targets))


def _untrained(experiment: Experiment, train: Fields) -> Surrogate:
    """Return the model before training, with the statistics of the training samples."""
    config = experiment.training
    torch.manual_seed(experiment.seed)
    return Surrogate(
        build_operator(experiment),
        fit_normalization(config.input_normalization, train.inputs),
        fit_normalization(config.target_normalization, train.targets),
    )


def _train_to_the_end(
    experiment: Experiment,
    fields: dict[Split, Fields],
    checkpoints: Checkpoints,
    run: RunLog,
    report: Report,
) -> tuple[TrainingState, list[dict[str, float]]]:
    """Train from the latest checkpoint, or from the start, and return the final state."""
    config = experiment.training
    batches = Batches(fields["train"], config.batch_size, experiment.seed)
    surrogate = _untrained(experiment, fields["train"]).to(_device())
    state = start_training(surrogate, config, len(batches))
    history: list[dict[str, float]] = []
    content = checkpoints.latest()
    if content is not None:
        history = state.restore(content)["history"]
    saved = started = time.perf_counter()
    for epoch in fit(state, batches, config):
        seconds = time.perf_counter() - started
        validation = evaluate(surrogate, fields["validation"], EVALUATION_BATCH)["rel_l2"]
        history.append(_epoch_record(epoch, seconds, validation))
        run.log(epoch.epoch, _epoch_metrics(history[-1]))
        report({"done": epoch.epoch, "total": config.epochs, "error": validation})
        due = time.perf_counter() - saved > SECONDS_BETWEEN_CHECKPOINTS
        if due or epoch.epoch == config.epochs:
            # Metrics first: the run then never lacks a step that the checkpoint has passed.
            run.flush()
            checkpoints.save(epoch.epoch, state.to_bytes({"history": history}))
            saved = time.perf_counter()
        started = time.perf_counter()
    return state, history


def _epoch_record(epoch: EpochReport, seconds: float, validation: float) -> dict[str, float]:
    return {
        "epoch": epoch.epoch,
        "train": epoch.train_loss,
        "validation": validation,
        "learning_rate": epoch.learning_rate,
        "seconds": seconds,
    }


def _epoch_metrics(record: dict[str, float]) -> dict[str, float]:
    return {
        "train/rel_l2": record["train"],
        "validation/rel_l2": record["validation"],
        "train/learning_rate": record["learning_rate"],
        "time/seconds_per_epoch": record["seconds"],
    }


def _outcome(
    experiment: Experiment,
    state: TrainingState,
    fields: dict[Split, Fields],
    dataset: Dataset,
    history: list[dict[str, float]],
) -> dict[str, Any]:
    """Return all that is known of a finished run, as plain data."""
    return {
        "identity": experiment.identity,
        "protocol": experiment.protocol,
        "preset": experiment.preset,
        "benchmark": experiment.data.benchmark.name,
        "resolution": list(experiment.data.benchmark.shape.space),
        "model": experiment.model_name,
        "seed": experiment.seed,
        "parameters": sum(p.numel() for p in state.model.parameters()),
        "test": evaluate(state.model, fields["test"], EVALUATION_BATCH),
        "validation": evaluate(state.model, fields["validation"], EVALUATION_BATCH),
        "mean_prediction": error_of_the_mean(fields["train"], fields["test"]),
        "seconds_per_epoch": median(record["seconds"] for record in history),
        "epochs": state.epoch,
        "n_train": len(fields["train"]),
        "history": history,
        "dataset": {"name": dataset.location.name, "digest": dataset.digest},
        "code": experiment.code,
        "settings": experiment.describe(),
        "environment": {**environment(), "device": str(_device())},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def log_outcome(run: RunLog, result: dict[str, Any]) -> None:
    """Bring a run in the tracking store up to a finished result; what it has is left alone."""
    for record in result["history"]:
        run.log(int(record["epoch"]), _epoch_metrics(record))
    last = result["epochs"]
    run.log(last, {f"test/{name}": value for name, value in result["test"].items()})
    run.log(
        last,
        {
            "model/parameters": result["parameters"],
            "test/rel_l2_of_the_mean": result["mean_prediction"],
        },
    )
    run.finish()


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _run_name(experiment: Experiment) -> str:
    return f"{experiment.data.benchmark.name} {experiment.model_name} seed {experiment.seed}"


def _tags(experiment: Experiment, suite: str, dataset: Dataset) -> dict[str, str]:
    return {
        "suite": suite,
        "benchmark": experiment.data.benchmark.name,
        "model": experiment.model_name,
        "preset": experiment.preset,
        "seed": str(experiment.seed),
        "protocol": experiment.protocol,
        "dataset": dataset.digest,
        "code": experiment.code,
    }


def _parameters(experiment: Experiment) -> dict[str, Any]:
    """Return the settings as flat, searchable names."""
    return dict(_flatten("", experiment.describe()))


def _flatten(prefix: str, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
