"""What is recorded of a run: names, tags, settings, metrics and the head of its result."""

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from lsm_core.experiments.experiment import Experiment
from lsm_core.reporting.origin import marked, origin_of
from storage.charts_page import add_to_suite, suite_tag
from storage.dataset_reader import Dataset
from storage.errors import StoreUnavailable
from storage.run_log import RunLog, Tracking

logger = logging.getLogger(__name__)


def result_head(experiment: Experiment) -> dict[str, Any]:
    """Return what every result begins with, also that of a run that failed."""
    start = experiment.start
    return {
        "identity": experiment.identity,
        "protocol": experiment.protocol,
        "preset": experiment.preset,
        "benchmark": experiment.data.benchmark.name,
        "origin": experiment.data.origin,
        "resolution": list(experiment.data.benchmark.shape.space),
        "model": experiment.model_name,
        "seed": experiment.seed,
        "fraction": experiment.training.fraction,
        "source": start.identity if start else None,
    }


def log_outcome(run: RunLog, result: dict[str, Any]) -> None:
    """Bring a run in the tracking store up to a finished result; what it has is left alone."""
    for record in result["history"]:
        run.log(int(record["epoch"]), epoch_metrics(record))
    last = result["epochs"]
    for split in ("test", "validation"):
        scores = {f"{split}/{name}": value for name, value in result[split].items()}
        scores.pop("validation/rel_l2", None)  # logged with every epoch
        run.log(last, scores)
    # A chart a benchmark, since bars are to be errors on the same samples. Step 0 makes them bars.
    run.log(0, {f"leaderboard/{_chart(result)}": result["test"]["rel_l2"]})
    run.log(last, {"model/parameters": result["parameters"]})
    if result["mean_prediction"] is not None:
        run.log(last, {"test/rel_l2_of_the_mean": result["mean_prediction"]})
    run.finish()


def _chart(result: dict[str, Any]) -> str:
    """Return whose errors stand in one chart: those on one benchmark and one kind of data."""
    origin = origin_of(result)
    return result["benchmark"] if origin == "generated" else f"{result['benchmark']}-{origin}"


def share_runs(tracking: Tracking, suite: str, results: Iterable[dict[str, Any]]) -> None:
    """Tag the runs that a suite took over from others; a store that is away costs a line."""
    try:
        add_to_suite(tracking, suite, {result["identity"] for result in results})
    except StoreUnavailable as error:
        logger.warning("runs of other suites are missing from the charts of %s: %s", suite, error)


def epoch_metrics(record: dict[str, Any]) -> dict[str, float]:
    """Return what one epoch showed, by names that MLflow's charts group."""
    names = {
        "train": "train/rel_l2",
        "validation": "validation/rel_l2",
        "test": "test/rel_l2_by_epoch",
        "learning_rate": "train/learning_rate",
        "seconds": "time/seconds_per_epoch",
        "samples_per_second": "time/samples_per_second",
        "peak_bytes": "memory/peak_bytes",
    }
    return {metric: record[key] for key, metric in names.items() if key in record}


def run_name(experiment: Experiment, setting: str = "") -> str:
    """Return what a run is called."""
    name = f"{experiment.data.benchmark.name} {experiment.model_name}{setting and ', '}{setting}"
    return f"{marked(name, experiment.data.origin)} seed {experiment.seed}"


def run_tags(experiment: Experiment, suite: str, setting: str, dataset: Dataset) -> dict[str, str]:
    """Return by what runs are found and grouped."""
    start = experiment.start
    return {
        "suite": suite,
        suite_tag(suite): "yes",
        **({"setting": setting} if setting else {}),
        "benchmark": experiment.data.benchmark.name,
        "model": experiment.model_name,
        "preset": experiment.preset,
        "seed": str(experiment.seed),
        "protocol": experiment.protocol,
        "dataset": dataset.digest,
        "origin": experiment.data.origin,
        "code": experiment.code,
        **({"source": start.identity} if start else {}),
    }


def run_parameters(experiment: Experiment) -> dict[str, Any]:
    """Return the settings as flat, searchable names."""
    return dict(_flatten("", experiment.describe()))


def _flatten(prefix: str, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
