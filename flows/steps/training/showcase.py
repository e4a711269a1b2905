"""The few test samples that are kept with every run, with what the model made of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.steps.training.fields import names_of
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.problems.panel import Panel
from lsm_core.problems.pooling import unstack_targets
from storage.datasets.reader import Dataset

SHOWN_SAMPLES = 3
WORST_SAMPLES = 10
PREDICTED = "predicted:"
"""Marks what a model made of a variable, among the arrays kept with its run."""


def showcase_arrays(
    benchmark: Benchmark, dataset: Dataset, predicted: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Return the first test samples and their predictions `(samples, *space, channel)`, by name."""
    return chosen_arrays(benchmark, dataset, range(len(predicted)), predicted)


def chosen_arrays(
    benchmark: Benchmark, dataset: Dataset, samples: Sequence[int], predicted: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Return some test samples, by their numbers, and their predictions, by name."""
    space = dict(zip(benchmark.space, benchmark.shape.space, strict=True))
    guesses = unstack_targets(predicted, benchmark.with_role("target"), space)
    names = names_of(benchmark)
    part = dataset.part("test", names)
    rows = [part[sample] for sample in samples]
    truth = {name: np.stack([row[name] for row in rows]) for name in names} if rows else {}
    return {**truth, **{f"{PREDICTED}{name}": values for name, values in guesses.items()}}


def showcase_panels(
    benchmark: Benchmark, shown: dict[str, dict[str, NDArray[Any]]], sample: int
) -> tuple[list[Panel], dict[str, Panel]]:
    """Return the panels of a test sample, and the last of them as each model predicts it."""
    truth: dict[str, NDArray[Any]] = {}
    predicted = {}
    for model, arrays in shown.items():
        one = {name: values[sample] for name, values in arrays.items()}
        truth = {name: values for name, values in one.items() if not name.startswith(PREDICTED)}
        guess = {n.removeprefix(PREDICTED): v for n, v in one.items() if n.startswith(PREDICTED)}
        predicted[model] = benchmark.panels({**truth, **guess})[-1]
    return benchmark.panels(truth), predicted
