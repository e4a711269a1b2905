"""Models of the same size: widths chosen so that all have as many parameters as LSM."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from torch import nn

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.models.catalogue import GridModelConfig, ModelConfig, build_model
from lsm_core.models.lsm import LsmConfig
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.problems.shape import ProblemShape
from lsm_core.surrogates.operator import shape_of_one_step

LARGEST_WIDTH = 4096


def matched(config: ModelConfig, target: int, shape: ProblemShape) -> ModelConfig:
    """Return the configuration with the width whose number of parameters is closest to a target.

    A width that has to be divisible by the number of heads changes in steps of it.
    """
    step = width_step(config)
    n_parameters = cache(lambda n_steps: parameters(with_width(config, n_steps * step), shape))
    n_steps = _first(lambda n: n_parameters(n) >= target, LARGEST_WIDTH // step)
    around = [n for n in (n_steps - 1, n_steps) if n >= 1]
    best = min(around, key=lambda n: abs(n_parameters(n) - target))
    return with_width(config, best * step)


def parameters(config: ModelConfig, shape: ProblemShape) -> int:
    """Return the number of parameters of a model, without the memory and time to fill them."""
    with torch.device("meta"):
        model: nn.Module = build_model(config, shape)
    return sum(parameter.numel() for parameter in model.parameters())


def one_application(benchmark: Benchmark) -> ProblemShape:
    """Return what a model maps when it is applied once: one step of a problem in time."""
    return shape_of_one_step(benchmark.shape, benchmark.n_steps)


def width_step(config: ModelConfig) -> int:
    """Return the number of heads, which the width is a multiple of, or one."""
    return getattr(_grid_config(config), "n_heads", 1)


def with_width(config: ModelConfig, width: int) -> ModelConfig:
    """Return the configuration with another main width, on points that of the body."""
    body = _grid_config(config)
    if isinstance(body, LsmConfig):
        raise ValueError("the size of an LSM is what the others are brought to")
    wider = replace(body, width=width)
    return replace(config, body=wider) if isinstance(config, PointCloudConfig) else wider


def _grid_config(config: ModelConfig) -> GridModelConfig:
    """Return the configuration that has the width; all but LSM's have one (`ModelEntry.config`)."""
    return config.body if isinstance(config, PointCloudConfig) else config


def _first(holds: Callable[[int], bool], largest: int) -> int:
    """Return the smallest number from 1 for which a rising condition holds."""
    low, high = 1, 2
    while high < largest and not holds(high):
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
