"""A problem's solver in the time that a network takes: the row of the board to compare with."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.coarser import Arrays, settings_of, solved_at
from lsm_core.evaluation.cost import least_seconds, timed
from lsm_core.models.catalogue import ModelConfig
from lsm_core.problems.fields import stack_channels
from lsm_core.problems.sample import Sample
from lsm_core.solvers.convergence import SolveFailed
from lsm_core.surrogates.operator import build_operator
from lsm_core.surrogates.surrogate import predict, samples_at_once

MOST_TIMED, SECONDS_TIMED = 32, 0.2
"""Samples that settings are timed with: as many as take so long, at least one."""
MUCH_LONGER = 2
"""Times too long from which on finer settings are not tried."""
FAILED = (SolveFailed, FloatingPointError)


@dataclass(frozen=True)
class Solved:
    """Samples that a solver has solved at coarser settings."""

    settings: Benchmark
    predicted: Float[np.ndarray, "samples *space channel"]
    seconds: float
    """Processor time of a sample."""


def network_seconds(
    config: ModelConfig, problem: Benchmark, inputs: Float[Tensor, "samples *space n_inputs"]
) -> float:
    """Return the processor time in which a model predicts one of many samples.

    The time does not depend on its weights: they are random.
    """
    torch.manual_seed(0)
    model = build_operator(config, problem).eval()
    some = inputs[:MOST_TIMED]
    batch = samples_at_once(int(np.prod(problem.shape.space)))
    return least_seconds(lambda: predict(model, some, batch)) / len(some)


def solved_in(seconds: float, problem: Benchmark, inputs: Arrays, seeds: Sequence[int]) -> Solved:
    """Return samples solved at the finest settings that take at most so long a sample.

    Settings at which a sample has no solution are passed over. If all take longer, the coarsest
    are taken, and their time tells.
    """
    all_settings, within = settings_of(problem), list[Benchmark]()
    for settings in all_settings:
        with suppress(*FAILED):
            taken = solver_seconds(problem, settings, inputs, seeds)
            if taken <= seconds:
                within.append(settings)
            elif taken > MUCH_LONGER * seconds:
                break
    others = [settings for settings in all_settings if settings not in within]
    for settings in (*reversed(within), *others):
        with suppress(*FAILED):
            samples, taken = timed(partial(solved_at, problem, settings, inputs, seeds))
            return Solved(settings, as_fields(problem, samples), taken / len(seeds))
    raise SolveFailed(f"{problem.name} at every setting", 0, float("nan"), 0.0)


def as_fields(
    problem: Benchmark, samples: Sequence[Sample]
) -> Float[np.ndarray, "samples *space channel"]:
    """Return targets side by side, as a model has them."""
    targets = problem.with_role("target")
    arrays = {each.name: np.stack([sample[each.name] for sample in samples]) for each in targets}
    space = dict(zip(problem.space, problem.shape.space, strict=True))
    return stack_channels(arrays, targets, space).astype(np.float32)


def solver_seconds(
    problem: Benchmark, settings: Benchmark, inputs: Arrays, seeds: Sequence[int]
) -> float:
    """Return the processor time of a sample at some settings, by a few of the samples."""

    def work(n_samples: int) -> Any:
        some = {name: values[:n_samples] for name, values in inputs.items()}
        return solved_at(problem, settings, some, seeds[:n_samples])

    alone = least_seconds(lambda: work(1), n_repeats=1)
    n_samples = int(min(len(seeds), MOST_TIMED, max(1.0, SECONDS_TIMED / max(alone, 1e-9))))
    return least_seconds(lambda: work(n_samples)) / n_samples if n_samples > 1 else alone
