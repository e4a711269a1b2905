"""Every model learns: the loss falls below half of the error of predicting the mean.

The smoke data has a dozen samples of most problems, from which nothing can be said of others: there
the criterion is the error on the training samples. Burgers has enough for its test samples, too.
"""

import json
from typing import get_args

import pytest

from lsm_core.names import BenchmarkName, ModelName
from tests.lsm_core.experiments.learning import (
    CHEAPEST,
    EARLY_LOSSES,
    GENERALIZES,
    early_losses,
    learn,
    trained_models,
)

CELLS = [
    pytest.param(benchmark, model, id=f"{benchmark}-{model}")
    for benchmark in get_args(BenchmarkName)
    for model in trained_models(benchmark)
    if benchmark != "burgers"
]


def check(benchmark: BenchmarkName, model: ModelName) -> None:
    learned = learn(benchmark, model)
    assert learned.halved
    assert benchmark not in GENERALIZES or learned.halved_on_test


@pytest.mark.parametrize("model", trained_models("burgers"))
def test_every_model_learns_burgers(model):
    check("burgers", model)


@pytest.mark.parametrize("model", CHEAPEST)
def test_the_first_epochs_are_those_that_were_stored(model):
    """A change of a model shows here; `python -m tests.measurements.early_losses` stores anew."""
    stored = json.loads(EARLY_LOSSES.read_text())[model]
    assert stored[-1] < 0.99 * stored[0]
    assert early_losses(model)[: len(stored)] == pytest.approx(stored, rel=0.05)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a Transolver takes some minutes on a quiet machine, others seconds
@pytest.mark.parametrize(("benchmark", "model"), CELLS)
def test_every_model_learns_every_problem(benchmark, model):
    check(benchmark, model)
