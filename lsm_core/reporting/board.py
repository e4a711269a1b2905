"""The board: models of one task side by side, ranked no finer than the noise allows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil, sqrt
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from lsm_core.evaluation.samples import Errors, disagreements, quantiles, relative_of
from lsm_core.names import MODEL_TITLES
from lsm_core.reporting.claims import Claim, claims_of
from lsm_core.reporting.comparison import OverSeeds, row_name
from lsm_core.reporting.task import Task, task_of
from lsm_core.result import Result

SOLVER = "coarse_solver"
"""What the row is called that is the problem's own solver, at coarser settings."""
SLOWER = 1.1
"""Times the network's from which on a solver did not keep to its time, as where none can."""
LEVEL = 0.05
"""Of the paired test between neighbours."""
ALARM_LEVEL = 0.001
"""Of the test of a run against its own reference."""
LEAST_REFERENCES = 3
"""Runs of other seeds that a mean and a deviation are taken of."""
OUTLYING = 8.0
"""Robust deviations below the others at which one sample is too good."""
MUCH_BETTER = 1 / 3
"""And as a part of what the reference has on that sample."""


@dataclass(frozen=True)
class Measured:
    """A result and the errors of its samples, none if they were not kept."""

    result: Result
    errors: Errors | None = None

    @property
    def relative(self) -> NDArray[np.float64] | None:
        """Return the relative error of every test sample."""
        return None if self.errors is None else relative_of(self.errors)


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """One model in a task, over its seeds."""

    model: str
    rank: int
    errors: OverSeeds
    p_value: float | None
    """Of the paired test against the row above; None for the first and without samples."""
    quantile: float | None
    """Relative error that nine of ten samples stay below."""
    claims: tuple[Claim, ...]
    parameters: int
    updates: int
    flops: float | None
    seconds: float
    peak_bytes: int
    flags: tuple[str, ...]
    seeds: tuple[int, ...]
    alarms: tuple[str, ...] = ()

    @property
    def worst(self) -> float:
        """Return the error of the worst seed."""
        return max(self.errors.values)


@dataclass(frozen=True)
class Board:
    """All rows of one task, the best first."""

    task: Task
    rows: tuple[BoardRow, ...] = field(default_factory=tuple)

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"id": self.task.id, "name": self.task.name, **asdict(self)}


def boards(runs: Sequence[Measured]) -> list[Board]:
    """Return a board for every task of some runs, by name."""
    tasks = {task.id: task for task in (task_of(run.result) for run in runs)}
    by_task: dict[str, list[Measured]] = {}
    for run in runs:
        by_task.setdefault(task_of(run.result).id, []).append(run)
    ordered = sorted(by_task, key=lambda key: tasks[key].name)
    return [Board(tasks[key], _rows(by_task[key])) for key in ordered]


def _rows(runs: Sequence[Measured]) -> tuple[BoardRow, ...]:
    """Return the rows of one task; neighbours that the samples do not tell apart share a rank."""
    models: dict[str, list[Measured]] = {}
    for run in runs:
        models.setdefault(row_name(run.result), []).append(run)
    ordered = sorted(models.values(), key=lambda own: fmean(r.result.error for r in own))
    rows: list[BoardRow] = []
    for number, own in enumerate(ordered):
        above = ordered[number - 1] if number else None
        p_value = None if above is None else paired_p_value(above, own)
        tied = above is not None and is_tied(above, own, p_value)
        rows.append(_row(own, rows[-1].rank if tied else number + 1, p_value))
    return tuple(rows)


def _row(own: Sequence[Measured], rank: int, p_value: float | None) -> BoardRow:
    results = [run.result for run in own]
    first = results[0]
    known = [run.errors for run in own if run.errors is not None]
    flops = [result.flops for result in results if result.flops is not None]
    return BoardRow(
        model=row_name(first),
        rank=rank,
        errors=OverSeeds(tuple(result.error for result in results)),
        p_value=p_value,
        quantile=fmean(quantiles(errors)["90%"] for errors in known) if known else None,
        claims=tuple(claims_of(first.benchmark, first.model, first.resolution)),
        parameters=first.parameters,
        updates=updates_of(first),
        flops=fmean(flops) if flops else None,
        seconds=fmean(sum(epoch.seconds for epoch in result.history) for result in results),
        peak_bytes=max(result.peak_bytes for result in results),
        flags=flags_of(first),
        seeds=tuple(sorted(result.seed for result in results)),
        alarms=tuple(alarm for run in own for alarm in alarms_of(run, own)),
    )


def updates_of(result: Result) -> int:
    """Return the steps of the optimiser, counted or, of older runs, computed."""
    if result.updates is not None:
        return result.updates
    return result.epochs * ceil(result.n_train / result.settings["training"]["batch_size"])


def flags_of(result: Result) -> tuple[str, ...]:
    """Return what of a run's protocol its error has to be read with."""
    # Classical models are not trained, whatever the protocol says, and predict all frames at once.
    training: Mapping[str, Any] = result.settings["training"] if result.epochs else {}
    model: Mapping[str, Any] = result.settings["model"]
    if result.model == SOLVER:
        own, network = model["seconds_a_sample"], model["network_seconds_a_sample"]
        title = MODEL_TITLES.get(model["network"], model["network"])
        times = f"{1000 * own:.2g} ms a sample, {title} {1000 * network:.2g} ms"
        slower = ("slower than the network",) if own > SLOWER * network else ()
        return (f"solver at {model['settings']}", times, *slower)
    steps = sum(name.startswith("rel_l2_step_") for name in result.test)
    found = {
        "rollout": steps > 1 and result.epochs and not training.get("teacher_forcing"),
        "teacher forcing": training.get("teacher_forcing"),
        "derivative loss": training.get("derivative_weight"),
        "EMA": training.get("averaging"),
        "clip": training.get("gradient_clip"),
        "no decay": not training.get("weight_decay", 1),
        "fitted": not result.epochs,
        "latent grid": "body" in model,
        "fine-tuned": result.source,
        f"{result.fraction:.0%} of the data": result.fraction != 1,
        "chosen by validation": result.selection == "best_validation",
        "chosen by test": result.selection == "best_test",
    }
    return tuple(name for name, holds in found.items() if holds)


def over_seeds(own: Sequence[Measured]) -> NDArray[np.float64] | None:
    """Return the relative error of every sample, as the mean over the seeds that kept it."""
    known = [run.relative for run in own if run.relative is not None]
    if not known or len({len(errors) for errors in known}) > 1:
        return None
    mean: NDArray[np.float64] = np.mean(known, axis=0)
    return mean


def paired_p_value(above: Sequence[Measured], below: Sequence[Measured]) -> float | None:
    """Return how likely two models that are equal differ as much on the same samples.

    A two-sided t-test of the differences sample by sample; None without samples to pair.
    """
    first, second = over_seeds(above), over_seeds(below)
    if first is None or second is None or len(first) != len(second) or len(first) < 2:
        return None
    difference = second - first
    deviation = float(difference.std(ddof=1))
    if not deviation:
        return 1.0 if not difference.any() else 0.0
    t = float(difference.mean()) / (deviation / sqrt(len(difference)))
    return float(2 * stdtr(len(difference) - 1, -abs(t)))


def is_tied(above: Sequence[Measured], below: Sequence[Measured], p_value: float | None) -> bool:
    """Return whether two neighbours are within the noise of samples or of seeds."""
    if p_value is None or p_value >= LEVEL:
        return True
    errors = [OverSeeds(tuple(r.result.error for r in own)) for own in (above, below)]
    return errors[1].mean - errors[0].mean <= max(each.deviation for each in errors)


def alarms_of(run: Measured, own: Sequence[Measured]) -> list[str]:
    """Return why a run is not to be believed, in a sentence each; none if nothing is found.

    Its figures must follow from the errors of its samples, and must not be too good beside the
    same model from other seeds: on the whole, or on single samples, as where they were trained on.
    """
    name = f"{row_name(run.result)} seed {run.result.seed}"
    found = []
    if run.errors is not None:
        kept = str(run.errors.get("identity", run.result.identity))
        if kept != run.result.identity:
            found.append(f"{name}: its errors are those of run {kept}")
        found += [f"{name}: {fault}" for fault in disagreements(run.result.test, run.errors)]
    others = [other for other in own if other.result.identity != run.result.identity]
    return found + [f"{name}: {fault}" for fault in too_good(run, others)]


def too_good(run: Measured, references: Sequence[Measured]) -> list[str]:
    """Return in which way a run is better than runs of the same model can be, if it is."""
    found = []
    errors = np.array([other.result.error for other in references])
    if len(errors) >= LEAST_REFERENCES and errors.std(ddof=1) > 0:
        spread = errors.std(ddof=1) * sqrt(1 + 1 / len(errors))
        bound = errors.mean() + float(stdtrit(len(errors) - 1, ALARM_LEVEL)) * spread
        if run.result.error < bound:
            found.append(
                f"error {run.result.error:.4g} is below {bound:.4g}, which one of "
                f"{1 / ALARM_LEVEL:.0f} runs like its {len(errors)} references would be"
            )
    expected, relative = over_seeds(references), run.relative
    if expected is None or relative is None or len(expected) != len(relative):
        return found
    samples = outlying_samples(relative, expected)
    if samples:
        listed = ", ".join(map(str, samples[:5]))
        found.append(
            f"{len(samples)} of {len(relative)} test samples ({listed}) are far better than beside "
            "other seeds: were they among those it was trained on?"
        )
    return found


def outlying_samples(relative: NDArray[np.float64], expected: NDArray[np.float64]) -> list[int]:
    """Return the samples on which a run is better than expected by more than on all others."""
    ratio = np.log(np.maximum(relative, 1e-300) / np.maximum(expected, 1e-300))
    middle = np.median(ratio)
    # The median absolute deviation of a normal distribution is 0.6745 deviations.
    deviation = max(float(np.median(np.abs(ratio - middle))) / 0.6745, 1e-3)
    limit = min(middle - OUTLYING * deviation, middle + np.log(MUCH_BETTER))
    return [int(sample) for sample in np.flatnonzero(ratio < limit)]
