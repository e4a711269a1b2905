"""What MLflow is to have of a run: names, tags, settings, metrics and files, from the store.

One function each for a run that is under way and for one that is finished; the training, the flow
that it is part of and `lsm runs sync` send what these return.
"""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from mlflow.entities import Metric

from flows.steps.results import FAILURE, begun_in, kept_traceback, result_in, saved_history
from lsm_core.reporting.comparison import row_name
from lsm_core.reporting.task import task_of
from lsm_core.result import Begun, Epoch, Outcome, Result, marked
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from storage.tracking.charts_page import SURROGATE, suite_tag
from storage.tracking.echo import RunRecord, Status, UsedDataset
from storage.tracking.registry import registered_name

Files = Mapping[str, Callable[[], bytes]]

METRICS = {
    "train": "train/rel_l2",
    "validation": "validation/rel_l2",
    "test": "test/rel_l2_by_epoch",
    "learning_rate": "train/learning_rate",
    "seconds": "time/seconds_per_epoch",
    "samples_per_second": "time/samples_per_second",
    "peak_bytes": "memory/peak_bytes",
}
"""What an epoch showed, by names that MLflow's charts group."""
PERCENT = "error in percent"
"""MLflow shows two decimals: errors are also in percent, the one by which models are compared."""
STEP = "rel_l2_step_"
"""What figures of the steps of a rollout begin with; they become one curve."""


def unfinished_record(
    begun: Begun,
    history: Sequence[Epoch] = (),
    status: Status | None = "RUNNING",
    suites: Collection[str] = (),
    traceback: bytes | None = None,
) -> RunRecord:
    """Return the record of a run that has come so far; the history is what a checkpoint holds."""
    return replace(
        _record(begun, begun, suites),
        started=begun.started,
        points=_points_of(history, [each.at or begun.started for each in history]),
        status=status,
        ended=now() if status in ("FAILED", "KILLED") else None,
        files={} if traceback is None else {FAILURE: lambda: traceback},
        files_version=hashlib.sha256(traceback or b"").hexdigest()[:16],
    )


def finished_record(
    result: Result,
    begun: Begun | None = None,
    suites: Collection[str] = (),
    files: Files | None = None,
    pictures: Files | None = None,
) -> RunRecord:
    """Return the record of a finished run, which belongs to these suites beside its own."""
    finished = milliseconds(result.finished)
    times = _times(result.history, finished)
    first = result.history[0] if result.history else None
    started = times[0] - round(1000 * first.seconds) if first else finished
    record = _record(result, result, suites if begun is None else {*suites, begun.suite})
    return replace(
        record,
        started=begun.started if begun else started,
        tags={**record.tags, **_made_by(result)},
        points=[*_points_of(result.history, times), *final_figures(result)],
        datasets=[used_dataset(result)],
        status="FINISHED",
        ended=finished,
        files=files or {},
        pictures=pictures or {},
        files_version="2",
    )


def final_figures(result: Result) -> list[Metric]:
    """Return the figures of a finished run: at step 0, which makes them bars, or a rollout."""
    at = milliseconds(result.finished)
    return [Metric(name, value, at, step) for name, value, step in _figures(result)]


def used_dataset(run: Begun | Result) -> UsedDataset:
    """Return the dataset of a run, called by what it is."""
    return UsedDataset(
        name=marked(f"{run.benchmark}-{run.preset}", run.origin).replace(", ", "-"),
        digest=run.dataset.digest,
        place=f"datasets/{run.benchmark}/{run.dataset.name}",
        profile=run.settings.get("data", {}).get("split_sizes", {}),
    )


def _made_by(result: Result) -> dict[str, str]:
    """Return where, by whom and by which sources a run was made, as MLflow names that."""
    known = result.environment
    tags = {
        "mlflow.source.name": f"lsm {result.suite}",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": known.get("commit"),
        "mlflow.user": known.get("user"),
    }
    return {name: str(value) for name, value in tags.items() if value}


def stored_record(
    root: Location,
    identity: str,
    suites: Collection[str] = (),
    files: Callable[[Result], tuple[Files, Files]] | None = None,
    *,
    has_failed: bool = False,
) -> RunRecord | None:
    """Return the record of a run as the store knows it; None of one that left nothing to send.

    `files` makes what is attached to a finished one: files, and pictures.
    """
    checkpoints = Checkpoints(root / "checkpoints" / identity)
    begun, result = begun_in(checkpoints), result_in(checkpoints)
    if result is not None:
        return finished_record(result, begun, suites, *(files(result) if files else ()))
    if begun is None:
        return None
    history = saved_history(checkpoints)
    status: Status | None = "FAILED" if has_failed else None
    record = unfinished_record(begun, history, status, suites, kept_traceback(checkpoints))
    # Of a failure only the last epoch before it is known.
    return replace(record, ended=record.points[-1].timestamp if record.points else begun.started)


def now() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def milliseconds(moment: str) -> int:
    """Return a moment, written as results have it, in milliseconds since 1970."""
    return round(1000 * datetime.fromisoformat(moment).timestamp())


def _record(run: Outcome, kept: Begun | Result, suites: Collection[str]) -> RunRecord:
    """Return what is known of a run from its first day: by what it is found and grouped."""
    name = f"{run.model}{run.setting and ', '}{run.setting}"
    task = task_of(kept)
    device = kept.device if isinstance(kept, Begun) else str(kept.environment.get("device", ""))
    return RunRecord(
        identity=run.identity,
        experiment=registered_name(run.benchmark),
        name=f"{marked(name, run.origin)} seed {run.seed}",
        started=0,
        tags={
            "suite": run.suite,
            **{suite_tag(suite): "yes" for suite in sorted({run.suite, *suites})},
            **({"setting": run.setting} if run.setting else {}),
            "benchmark": run.benchmark,
            "model": run.model,
            SURROGATE: row_name(run),
            "preset": run.preset,
            "seed": str(run.seed),
            "protocol": run.protocol,
            "dataset": kept.dataset.digest,
            "origin": run.origin,
            "task": task.id,
            "division": task.division,
            "code": kept.code,
            **({"source": run.source} if run.source else {}),
            **({"device": device} if device else {}),
        },
        # As the store has them: what is a tuple today is a list when it is read again.
        parameters=dict(_flatten("", json.loads(json.dumps(kept.settings)))),
    )


def _flatten(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield settings by flat, searchable names."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", str(value)


def _points_of(history: Sequence[Epoch], times: Sequence[int]) -> list[Metric]:
    return [
        Metric(metric, getattr(each, name), at, each.epoch)
        for each, at in zip(history, times, strict=True)
        for name, metric in METRICS.items()
        if getattr(each, name) is not None
    ]


def _times(history: Sequence[Epoch], finished: int) -> list[int]:
    """Return when each epoch ended; of older runs, as if nothing had come between them."""
    ends, end = [], finished
    for each in reversed(history):
        end = each.at or end
        ends.append(end)
        end -= round(1000 * each.seconds)
    return ends[::-1]


def _figures(result: Result) -> Iterator[tuple[str, float, int]]:
    """Yield the figures of a finished run, with their steps."""
    yield f"{PERCENT}/test", 100 * result.error, 0
    for split, scores in (("test", result.test), ("validation", result.validation)):
        steps = {name: v for name, v in scores.items() if name.startswith(STEP)}
        for name, value in scores.items():
            # That of the validation samples is logged with every epoch.
            if name not in steps and (split, name) != ("validation", Result.ERROR):
                yield f"{split}/{name}", value, 0
        for name in sorted(steps, key=lambda each: int(each.removeprefix(STEP))):
            yield f"rollout/{split}_rel_l2", steps[name], int(name.removeprefix(STEP))
    yield "model/parameters", result.parameters, 0
    yield "time/median_seconds_per_epoch", result.seconds_per_epoch, 0
    for name in ("updates", "samples_seen", "flops"):
        if (figure := getattr(result, name)) is not None:  # older runs do not say
            yield f"training/{name}", figure, 0
    if result.mean_prediction is not None:
        yield "test/rel_l2_of_the_mean", result.mean_prediction, 0
