"""Train cells of the smoke preset in memory, on data made on the spot."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from lsm_core.evaluation.evaluate import error_of_the_mean, evaluate
from lsm_core.experiments.plans import FIRST_SEED, Split
from lsm_core.experiments.presets import applies, experiment
from lsm_core.experiments.protocols import data_plan
from lsm_core.models.catalogue import MODELS
from lsm_core.names import BenchmarkName, ModelName
from lsm_core.problems.fields import stack_channels
from lsm_core.surrogates.normalization import fit_normalization
from lsm_core.surrogates.operator import build_operator
from lsm_core.surrogates.surrogate import Surrogate
from lsm_core.training.batches import BatchesInMemory, Fields, permutations
from lsm_core.training.loop import EpochReport, fit
from lsm_core.training.state import start_training

EARLY_LOSSES = Path(__file__).with_name("early_losses.json")
N_EARLY_EPOCHS = 3
N_EARLY_EPOCHS_OF: dict[ModelName, int] = {"lno": 8}
"""Of models that start with the same answer everywhere and take longer to leave it."""
MOST_EPOCHS = 1000
PATIENCE: dict[ModelName, int] = {"transolver": 6000, "lno": 6000, "flare": 6000}
"""Epochs of models that are slow to begin: their attention is a mean over all points at first. On
elasticity_p the loss of a Transolver is halved after 2,565 epochs, of an LNO after 3,081, of a
FLARE after 1,006, three updates each; their papers train for 125,000 updates and more."""
CHEAPEST: dict[ModelName, BenchmarkName] = {
    model: "burgers" if applies("burgers", model) else "navier_stokes"
    for model in get_args(ModelName)
    if not MODELS[model].is_fitted
}
"""The problem on which a model shows soonest that it learns."""
RATES: dict[ModelName, float] = {"galerkin": 5e-4, "sno": 4e-3}
"""Rates other than the preset's 2e-3. The layers of the Galerkin Transformer have no normalization
around them, and some problems never leave the error of the mean; SNO is slow on Navier-Stokes."""
GENERALIZES: tuple[BenchmarkName, ...] = ("burgers",)
"""Problems with enough smoke data to say something of other samples."""


def applicable_models(benchmark: BenchmarkName) -> list[ModelName]:
    """Return the models that are made for a benchmark, in the order of their names' table."""
    return [model for model in get_args(ModelName) if applies(benchmark, model)]


def trained_models(benchmark: BenchmarkName) -> list[ModelName]:
    """Return those of them that are trained, not computed from the samples."""
    return [model for model in applicable_models(benchmark) if not MODELS[model].is_fitted]


@dataclass(frozen=True)
class Learned:
    """Training loss of every epoch and error on test samples, beside those of the mean."""

    losses: tuple[float, ...]
    test: float
    mean_on_train: float
    mean_on_test: float

    @property
    def halved(self) -> bool:
        """Return whether the training loss is below half of the error of the mean."""
        return self.losses[-1] < 0.5 * self.mean_on_train

    @property
    def halved_on_test(self) -> bool:
        """Return whether the test error is below half of the error of the mean."""
        return self.test < 0.5 * self.mean_on_test


@cache
def learn(benchmark: BenchmarkName, model: ModelName, most_epochs: int | None = None) -> Learned:
    """Return what a model learns of the smoke data of a benchmark.

    The smoke preset only shows that everything runs. Here training goes on, at a constant rate,
    until the error of the mean is halved, on Burgers on test samples, too. It ends without success
    after `most_epochs`.
    """
    most_epochs = most_epochs or PATIENCE.get(model, MOST_EPOCHS)
    cell = experiment("smoke", benchmark, model)
    rate = RATES.get(model, cell.training.learning_rate)
    config = replace(cell.training, epochs=most_epochs, schedule="constant", learning_rate=rate)
    train, test = smoke_fields(benchmark, "train"), smoke_fields(benchmark, "test")
    torch.manual_seed(0)
    surrogate = Surrogate(
        build_operator(cell.model, cell.data.benchmark),
        fit_normalization(config.input_normalization, train.inputs),
        fit_normalization(config.target_normalization, train.targets),
    )
    batches = BatchesInMemory(train, config.batch_size, permutations(len(train), seed=0))
    reports = fit(start_training(surrogate, config, len(batches)), batches, config)
    mean = train.targets.mean(0)
    means = error_of_the_mean(mean, [train]) or 0.0, error_of_the_mean(mean, [test]) or 0.0
    losses: tuple[float, ...] = ()
    for report in reports:
        if isinstance(report, EpochReport):
            losses = (*losses, report.train_loss)
            if losses[-1] < 0.5 * means[0] or report.epoch == most_epochs:
                learned = Learned(losses, evaluate(surrogate, [test], len(test))["rel_l2"], *means)
                if benchmark not in GENERALIZES or learned.halved_on_test:
                    break
    return learned


def early_losses(model: ModelName) -> list[float]:
    """Return the losses of the first epochs of a model on its cheapest problem.

    On Burgers it is trained to the end by another test: the rate is constant, so that the first
    epochs are the same however many follow, and one training is enough for both.
    """
    n_epochs, benchmark = N_EARLY_EPOCHS_OF.get(model, N_EARLY_EPOCHS), CHEAPEST[model]
    if benchmark == "burgers":
        return list(learn(benchmark, model).losses[:n_epochs])
    return list(learn(benchmark, model, n_epochs).losses)


@cache
def smoke_fields(name: BenchmarkName, split: Split) -> Fields:
    """Return one part of the smoke data of a benchmark."""
    plan = data_plan("smoke", name)
    first = FIRST_SEED[split]
    samples = plan.benchmark.generate_many(range(first, first + plan.split_sizes[split]))
    arrays = {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}
    space = dict(zip(plan.benchmark.space, plan.benchmark.shape.space, strict=True))
    inputs = stack_channels(arrays, plan.benchmark.with_role("input"), space)
    targets = stack_channels(arrays, plan.benchmark.with_role("target"), space)
    return Fields(torch.tensor(inputs), torch.tensor(targets))
