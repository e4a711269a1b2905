from dataclasses import replace
from typing import get_args

import pytest

from lsm_core.benchmarks.catalogue import BENCHMARKS
from lsm_core.experiments.presets import (
    applies,
    check_applies,
    experiment,
    matched,
    model_config,
    parameters,
    with_width,
)
from lsm_core.experiments.protocols import data_plan
from lsm_core.models.catalogue import MODELS
from lsm_core.models.fno import FnoConfig
from lsm_core.models.lsm import LsmConfig
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import BenchmarkName, ModelName
from lsm_core.problems.shape import ProblemShape
from lsm_core.surrogates.operator import shape_of_one_step
from tests.lsm_core.experiments.learning import applicable_models, trained_models

TIME_STEPPING = [name for name, model in MODELS.items() if model.needs_history]
SHAPE = ProblemShape(space=(16, 16), n_inputs=1, n_outputs=1)


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


@pytest.mark.parametrize("benchmark", get_args(BenchmarkName))
def test_every_model_has_as_many_parameters_as_lsm(benchmark):
    problem = data_plan("matched", benchmark).benchmark
    shape = shape_of_one_step(problem.shape, problem.n_steps)
    target = parameters(model_config("matched", benchmark, "lsm"), shape)
    differences = {}
    for model in trained_models(benchmark):
        config = model_config("matched", benchmark, model)
        differences[model] = parameters(config, shape) / target - 1
    # The size of a multiwavelet model jumps: its channels are a multiple of order^d.
    jumps = differences.pop("mwt")
    assert abs(jumps) < 0.5
    assert max(map(abs, differences.values())) < 0.15, differences


def test_the_width_is_the_closest_one():
    config = FnoConfig(n_modes=3)
    sizes = {width: parameters(with_width(config, width), SHAPE) for width in range(1, 40)}
    for target in (1, sizes[7], sizes[7] + 1, (sizes[20] + sizes[21]) // 2 - 1, sizes[33] - 1):
        closest = min(sizes, key=lambda width: abs(sizes[width] - target))
        assert matched(config, target, SHAPE) == with_width(config, closest)


def test_heads_divide_the_width():
    config = model_config("quick", "darcy", "swin")
    assert config.n_heads > 1
    assert matched(config, 10_000, SHAPE).width % config.n_heads == 0


def test_on_points_the_body_changes_its_width():
    wider = with_width(PointCloudConfig(body=FnoConfig(width=4)), 9)
    assert wider == PointCloudConfig(body=FnoConfig(width=9))


def test_lsm_is_the_measure():
    with pytest.raises(ValueError, match="the size of an LSM"):
        with_width(LsmConfig(), 8)


def test_the_night_trains_the_models_of_quick_on_more_samples_by_the_same_recipe():
    recipes = set()
    for benchmark in get_args(BenchmarkName):
        for model in ("lsm_ours", "fno", "transolver"):
            quick, night = (experiment(preset, benchmark, model) for preset in ("quick", "night"))
            assert night.model == quick.model
            assert night.data.n_train > quick.data.n_train
            assert night.data.benchmark == quick.data.benchmark
            assert replace(night.training, epochs=quick.training.epochs) == quick.training
            recipes.add(
                replace(
                    night.training,
                    epochs=1,
                    input_normalization="none",
                    target_normalization="none",
                )
            )
    assert len(recipes) == 1
    assert recipes.pop().optimizer == "adamw"


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_the_published_recipe_is_adam_with_decay_in_the_gradient(preset):
    config = experiment(preset, "darcy", "lsm").training
    assert (config.optimizer, config.decayed, config.weight_decay) == ("adam", "all", 1e-4)
    assert (config.gradient_clip, config.averaging, config.derivative_weight) == (0, 0, 0)
    assert (config.schedule, config.batch_size, config.updates) == ("step", 20, 0)
    assert not config.teacher_forcing


def test_only_the_models_differ_from_quick():
    quick, same_size = (experiment(preset, "darcy", "fno") for preset in ("quick", "matched"))
    assert quick.data == same_size.data
    assert quick.training == same_size.training
    assert quick.model != same_size.model
    assert quick.protocol != same_size.protocol
