from typing import get_args

import pytest

from lsm_core.experiments.matched_sizes import (
    matched,
    one_application,
    parameters,
    width_step,
    with_width,
)
from lsm_core.experiments.presets import applicable_models, experiment, model_config
from lsm_core.experiments.protocols import data_plan
from lsm_core.models.fno import FnoConfig
from lsm_core.models.lsm import LsmConfig
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import BenchmarkName
from lsm_core.problems.shape import ProblemShape

SHAPE = ProblemShape(space=(16, 16), n_inputs=1, n_outputs=1)


@pytest.mark.parametrize("benchmark", get_args(BenchmarkName))
def test_every_model_has_as_many_parameters_as_lsm(benchmark):
    shape = one_application(data_plan("matched", benchmark).benchmark)
    target = parameters(model_config("matched", benchmark, "lsm"), shape)
    differences = {}
    for model in applicable_models(benchmark):
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
    assert width_step(config) == config.n_heads > 1
    assert matched(config, 10_000, SHAPE).width % config.n_heads == 0


def test_on_points_the_body_changes_its_width():
    wider = with_width(PointCloudConfig(body=FnoConfig(width=4)), 9)
    assert wider == PointCloudConfig(body=FnoConfig(width=9))


def test_lsm_is_the_measure():
    with pytest.raises(ValueError, match="the size of an LSM"):
        with_width(LsmConfig(), 8)


def test_only_the_models_differ_from_quick():
    quick, same_size = (experiment(preset, "darcy", "fno") for preset in ("quick", "matched"))
    assert quick.data == same_size.data
    assert quick.training == same_size.training
    assert quick.model != same_size.model
    assert quick.protocol != same_size.protocol
