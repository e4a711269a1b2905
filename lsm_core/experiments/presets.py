"""The presets: what is trained on which data, and how."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch

from lsm_core.benchmarks.given import GivenProblem
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.protocols import BATCH, PROTOCOLS, Problem, data_plan, protocol_of
from lsm_core.models.catalogue import MODELS, GridModelConfig, ModelConfig, build_model
from lsm_core.models.entry import Task
from lsm_core.models.lsm import LsmConfig
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import ModelName, PresetName
from lsm_core.problems.shape import ProblemShape
from lsm_core.surrogates.operator import shape_of_one_step
from lsm_core.training.config import TrainingConfig

SMALL: tuple[PresetName, ...] = ("smoke", "quick", "night")
LATENT_GRIDS: dict[int, tuple[tuple[tuple[int, ...], int], tuple[tuple[int, ...], int]]] = {
    1: (((256,), 24), ((64,), 16)),
    2: (((96, 96), 12), ((32, 32), 10)),
    3: (((32, 32, 32), 8), ((16, 16, 16), 6)),
}
"""The grid behind scattered points and its Fourier modes, by the number of coordinates: in the
presets of the paper and in small ones."""
LARGEST_WIDTH = 4096
"""Of the models that are brought to the size of LSM."""


def experiment(
    preset: PresetName, benchmark: Problem, model: ModelName, seed: int = 0
) -> Experiment:
    """Return one cell of a preset."""
    return Experiment(
        preset=preset,
        data=data_plan(preset, benchmark),
        model_name=model,
        model=model_config(preset, benchmark, model),
        training=_training_of(preset, benchmark, model),
        seed=seed,
    )


def _training_of(preset: PresetName, benchmark: Problem, model: ModelName) -> TrainingConfig:
    """Return how a preset trains a model: all in one way, but for what a model cannot bear.

    At the published sizes each is trained as its authors do.
    """
    config = training_config(preset, benchmark)
    entry = MODELS[model]
    if preset in ("paper", "release"):
        own = entry.recipes.get(benchmark, {}) if isinstance(benchmark, str) else {}
        return replace(config, **own)
    is_borne = preset != "smoke" or entry.decays  # AdamW's decay is borne by all
    return config if is_borne else replace(config, weight_decay=0.0)


def applies(benchmark: Problem, model: ModelName) -> bool:
    """Return whether a model is made for a benchmark.

    Models of time steps need a history; all others take any grid, and points as they are or through
    a latent grid. Classical models need the same points in every sample.
    """
    protocol = protocol_of(benchmark)
    if MODELS[model].is_fitted and protocol.differs_in_points:
        return False
    return not MODELS[model].needs_history or protocol.steps_through_time


def check_applies(benchmark: Problem, model: ModelName) -> None:
    """Raise a ValueError that says why a model is not made for a benchmark."""
    name = protocol_of(benchmark).published.benchmark.name
    if MODELS[model].is_fitted and protocol_of(benchmark).differs_in_points:
        raise ValueError(f"{model} needs the same points in every sample, which {name} has not")
    if not applies(benchmark, model):
        fitting = [name for name, protocol in PROTOCOLS.items() if protocol.steps_through_time]
        raise ValueError(
            f"{model} predicts time steps and is made for {' and '.join(fitting)}, not for {name}"
        )


def model_config(preset: PresetName, benchmark: Problem, model: ModelName) -> ModelConfig:
    """Return the settings of a model in a preset; ValueError if it is not made for the problem."""
    check_applies(benchmark, model)
    if preset == "matched":
        return _matched(benchmark, model)
    if preset == "night":
        return model_config("quick", benchmark, model)
    entry, protocol, small = MODELS[model], protocol_of(benchmark), preset in SMALL
    # Those that work on as many features as they are wide have no choice; the others have one.
    n_features = None if entry.latent else 16 if small else 32
    config = entry.preset(
        Task(
            preset=preset,
            n_dims=protocol.point_axes
            if protocol.is_scattered
            else len(protocol.published.benchmark.space),
            is_periodic=protocol.is_periodic,
            steps_through_time=protocol.steps_through_time,
            quick_modes=protocol.quick_modes,
            released_width=protocol.released_width,
            is_scattered=protocol.is_scattered,
            has_mesh=protocol.has_mesh,
            reads_others=isinstance(protocol.published.benchmark, GivenProblem),
        )
    )
    if entry.takes_points or not protocol.is_scattered:
        return config
    latent, n_modes = LATENT_GRIDS[protocol.point_axes][small]
    points = PointCloudConfig(
        body=config, n_features=n_features, latent_shape=latent, n_modes=n_modes
    )
    problem = protocol.published.benchmark
    if not isinstance(problem, GivenProblem):
        return points
    # Parameters of a sample are read at every point: in the code of the shape they would only bend
    # the grid.
    n_fields = problem.shape.n_inputs - problem.n_position_axes
    return replace(points, n_fields=n_fields, averaged=True)


@cache
def _matched(benchmark: Problem, model: ModelName) -> ModelConfig:
    """Return the quick settings, as wide as it takes to have the parameters of the quick LSM."""
    config, reference = (model_config("quick", benchmark, name) for name in (model, "lsm"))
    if model == "lsm" or MODELS[model].is_fitted:
        return config
    problem = data_plan("quick", benchmark).benchmark
    shape = shape_of_one_step(problem.shape, problem.n_steps)
    return matched(config, parameters(reference, shape), shape)


def matched(config: ModelConfig, target: int, shape: ProblemShape) -> ModelConfig:
    """Return the configuration with the width whose number of parameters is closest to a target.

    A width that has to be divisible by the number of heads changes in steps of it.
    """
    step = getattr(_grid_config(config), "n_heads", 1)
    n_parameters = cache(lambda n_steps: parameters(with_width(config, n_steps * step), shape))
    n_steps = _first(lambda n: n_parameters(n) >= target, LARGEST_WIDTH // step)
    around = [n for n in (n_steps - 1, n_steps) if n >= 1]
    best = min(around, key=lambda n: abs(n_parameters(n) - target))
    return with_width(config, best * step)


def parameters(config: ModelConfig, shape: ProblemShape) -> int:
    """Return the number of parameters of a model, without the memory and time to fill them."""
    with torch.device("meta"):
        model = build_model(config, shape)
    return sum(parameter.numel() for parameter in model.parameters())


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


def modern(config: TrainingConfig) -> TrainingConfig:
    """Return the recipe of today's models in place of the released one, the same for every model.

    Small batches, so many updates; AdamW, whose decay leaves biases and scales alone; gradients
    clipped; one cycle of the rate. The rate is the best of 2, 3 and 4e-3 for LSM (ours), FNO and
    U-Net together, by the geometric mean of validation errors on Burgers, Darcy, elasticity_g and
    airfoil (`tests/measurements/results/modern_rate.md`).
    """
    return replace(
        config,
        batch_size=BATCH,
        optimizer="adamw",
        weight_decay=1e-5,
        decayed="matrices",
        gradient_clip=0.1,
        schedule="one_cycle",
        learning_rate=3e-3,
    )


def training_config(preset: PresetName, benchmark: Problem) -> TrainingConfig:
    """Return how a preset trains; `matched` differs from `quick` in its models alone."""
    if preset == "matched":
        return training_config("quick", benchmark)
    protocol = protocol_of(benchmark)
    inputs, targets = protocol.scaled_small if preset in SMALL else protocol.scaled
    config = TrainingConfig(input_normalization=inputs, target_normalization=targets)
    if preset == "paper":
        return replace(config, epochs=500)
    if preset == "release":
        # The released loops count epochs 0 to 500.
        return replace(config, epochs=501, learning_rate=protocol.released_rate)
    if preset == "smoke":
        return replace(config, epochs=4, batch_size=4, schedule="one_cycle", learning_rate=2e-3)
    is_night = preset == "night"
    return modern(
        replace(config, epochs=protocol.night_epochs if is_night else protocol.quick_epochs)
    )
