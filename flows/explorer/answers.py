"""What the page asks for: a sample as the surrogate sees it, and as the solver does."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from flows.errors import BadInput
from flows.steps.models.packaging import PackagedModel
from flows.steps.models.shipped import open_shipped, shipped_card, shipped_names
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.variations import (
    KNOBS,
    NEW_SEEDS,
    hidden_changes,
    inputs_of,
    varied,
)
from lsm_core.problems.panel import Panel
from lsm_core.problems.sample import Sample
from lsm_core.solvers.convergence import SolveFailed

LARGEST_SEED = 999_999
WAITING_SOLVES = 8
"""So many may wait for the solver; more are told to come again."""


class Busy(Exception):
    """Too many wait already."""


class Question(NamedTuple):
    """A sample of a problem: its seed, and parameters that were changed."""

    problem: str
    seed: int
    changes: dict[str, float]


def read_question(plain: Any) -> Question:
    """Return what plain data ask for; BadInput, in one sentence, if it makes no sense."""
    if not isinstance(plain, dict):
        raise BadInput("a question is an object with problem, seed and changes")
    unknown = set(plain) - {"problem", "seed", "changes"}
    if unknown:
        raise BadInput(f"a question has problem, seed and changes, not {sorted(unknown)[0]!r:.40}")
    names = shipped_names()
    if plain.get("problem") not in names:
        raise BadInput(f"problem must be one of {', '.join(names)}")
    seed, changes = plain.get("seed", 0), plain.get("changes", {})
    if type(seed) is not int or not 0 <= seed <= LARGEST_SEED:
        raise BadInput(f"seed must be a whole number from 0 to {LARGEST_SEED}")
    if not isinstance(changes, dict):
        raise BadInput("changes must be numbers by the names of parameters")
    for name, value in changes.items():
        if type(value) not in (int, float) or not np.isfinite(value):
            raise BadInput(f"{name!r:.40} must be a number")
    return Question(plain["problem"], seed, {k: float(v) for k, v in changes.items()})


@cache
def model_of(name: str) -> PackagedModel:
    """Return the model of a problem, loaded once."""
    return open_shipped(name)


def problems() -> list[dict[str, Any]]:
    """Return what there is to play with, for the page."""
    found = []
    for name in shipped_names():
        card = shipped_card(name)
        parameters = card["data"]["parameters"]
        found.append(
            {
                "name": name,
                "title": card["title"],
                "trained_on": card["trained_on"],
                "error": card["held_out"]["rel_l2"],
                "knobs": [{**vars(k), "value": parameters[k.name]} for k in KNOBS.get(name, ())],
            }
        )
    return found


@dataclass
class Answers:
    """Answers to questions, from several threads at once."""

    model_lock: threading.Lock = field(default_factory=threading.Lock)
    solver_lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(WAITING_SOLVES)
    )

    def predicted(self, question: Question) -> dict[str, Any]:
        """Return the surrogate's fields, the error to expect and whether the input is strange."""
        packaged, asked = _asked(question)
        inputs = _inputs(asked, question.seed)
        with self.model_lock:
            batch = {name: values[None] for name, values in inputs.items()}
            began = time.perf_counter()
            packaged.predictor(batch)  # alone: what is thought of it takes as long three times
            seconds = time.perf_counter() - began
            fields, opinion = packaged.predictor.with_opinion(batch, packaged.trust)
        guess = {name: values[0] for name, values in fields.items()}
        reasons = hidden_changes(packaged.benchmark, question.changes)
        if opinion is not None and opinion.is_strange[0]:
            reasons.append("the input is unlike the training samples")
        trust = packaged.trust
        return {
            "panels": _panels(asked, {**inputs, **guess}),
            "expected_error": None if opinion is None else float(opinion.expected_error[0]),
            "coverage": None if trust is None else trust.coverage,
            "is_strange": bool(reasons),
            "reasons": reasons,
            "seconds": seconds,
        }

    def solved(self, question: Question) -> dict[str, Any]:
        """Return the solver's fields beside the surrogate's, the error and both times.

        Busy if too many wait for the solver.
        """
        if not self.waiting.acquire(blocking=False):
            raise Busy("the solver has a queue; ask again in a few seconds")
        try:
            answer = self.predicted(question)
            packaged, asked = _asked(question)
            with self.solver_lock:
                began = time.perf_counter()
                try:
                    truth = asked.generate(NEW_SEEDS + question.seed)
                except SolveFailed as error:
                    raise BadInput(f"the solver found no solution: {error}") from error
                seconds = time.perf_counter() - began
        finally:
            self.waiting.release()
        with self.model_lock:
            batch = {v.name: truth[v.name][None] for v in packaged.predictor.model.inputs}
            guess = {name: values[0] for name, values in packaged.predictor(batch).items()}
        targets = list(guess)
        wrong = np.concatenate([(guess[name] - truth[name]).ravel() for name in targets])
        right = np.concatenate([truth[name].ravel() for name in targets])
        relative = float(np.linalg.norm(wrong) / max(float(np.linalg.norm(right)), 1e-30))
        true, made = (asked.panels({**truth, **some})[-1] for some in ({}, guess))
        off = Panel(
            title="error",
            positions=true.positions,
            values=made.values - true.values,
            unit=true.unit,
            true_to_scale=true.true_to_scale,
            window=true.window,
        )
        return {
            **answer,
            "solution": _plain(true),
            "difference": _plain(off),
            "rel_l2": relative,
            "solver_seconds": seconds,
        }


def _asked(question: Question) -> tuple[PackagedModel, Benchmark]:
    packaged = model_of(question.problem)
    try:
        return packaged, varied(packaged.benchmark, question.changes)
    except ValueError as error:
        raise BadInput(str(error)) from error


def _inputs(problem: Benchmark, seed: int) -> Sample:
    try:
        return inputs_of(problem, NEW_SEEDS + seed)
    except (SolveFailed, ValueError) as error:
        raise BadInput(f"there is no such sample: {error}") from error


def _panels(problem: Benchmark, sample: Sample) -> list[dict[str, Any]]:
    return [_plain(panel) for panel in problem.panels(sample)]


def _plain(panel: Panel) -> dict[str, Any]:
    """Return a panel as the page draws it: a line, a mesh of nodes, or points."""
    values = np.nan_to_num(np.asarray(panel.values, np.float64))
    kind = {1: "line"}.get(len(panel.positions), "mesh" if values.ndim == 2 else "points")
    return {
        "title": panel.title,
        "unit": panel.unit,
        "kind": kind,
        "shape": list(values.shape),
        "positions": [_rounded(each) for each in panel.positions],
        "values": _rounded(values),
        "window": panel.window,
        "true_to_scale": panel.true_to_scale,
    }


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.4g}") for value in np.asarray(values, np.float64).ravel()]


def sentence(error: Mapping[str, Any] | Exception) -> dict[str, str]:
    """Return what the page shows in place of an answer."""
    return {"sentence": str(error)}
