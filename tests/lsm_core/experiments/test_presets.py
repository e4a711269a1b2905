from typing import get_args

import pytest

from lsm_core.benchmarks.catalogue import BENCHMARKS
from lsm_core.experiments.presets import (
    applicable_models,
    applies,
    check_applies,
    experiment,
)
from lsm_core.models.catalogue import MODELS
from lsm_core.names import BenchmarkName, ModelName

TIME_STEPPING = [name for name, model in MODELS.items() if model.needs_history]


def test_models_of_time_steps_are_made_for_problems_that_step_through_time():
    for name, benchmark in BENCHMARKS.items():
        steps = benchmark().n_steps > 1
        assert all(applies(name, model) == steps for model in TIME_STEPPING)


def test_all_other_models_are_made_for_every_problem():
    for benchmark in get_args(BenchmarkName):
        others = set(get_args(ModelName)) - set(TIME_STEPPING)
        assert others <= set(applicable_models(benchmark))
    assert applicable_models("navier_stokes") == list(get_args(ModelName))


@pytest.mark.parametrize("model", TIME_STEPPING)
def test_asking_for_another_problem_says_why_not(model):
    sentence = f"{model} predicts time steps and is made for navier_stokes, not for darcy"
    with pytest.raises(ValueError, match=sentence):
        check_applies("darcy", model)
    with pytest.raises(ValueError, match=sentence):
        experiment("smoke", "darcy", model)
