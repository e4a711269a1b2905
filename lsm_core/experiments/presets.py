"""The presets: what is trained on which data, and how."""

from dataclasses import replace
from functools import cache

from lsm_core.experiments.applicability import check_applies
from lsm_core.experiments.data_plans import data_plan
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.matched_sizes import matched, one_application, parameters
from lsm_core.experiments.model_presets import PERIODIC, grid_model
from lsm_core.models.catalogue import ModelConfig
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import BenchmarkName, ModelName, PresetName
from lsm_core.training.config import Scheme, TrainingConfig

SMALL: tuple[PresetName, ...] = ("smoke", "quick")

RELEASED_SLOW: tuple[BenchmarkName, ...] = (
    "elasticity_p",
    "plasticity",
    "navier_stokes",
    "darcy",
)
"""Problems whose released scripts start at 5e-4, where the paper has 1e-3 for all."""

QUICK_EPOCHS: dict[BenchmarkName, tuple[int, int]] = {
    "burgers": (15, 10),
    "darcy": (6, 4),
    "navier_stokes": (6, 4),
    "elasticity_p": (6, 4),
    "elasticity_g": (8, 4),
    "plasticity": (8, 4),
    "airfoil": (10, 4),
    "pipe": (6, 4),
}
"""Epochs and batch size of quick training: about half a minute on one core for most models. With so
few epochs, small batches learn most: the number of steps is what is short."""


def experiment(
    preset: PresetName, benchmark: BenchmarkName, model: ModelName, seed: int = 0
) -> Experiment:
    """Return one cell of a preset."""
    return Experiment(
        preset=preset,
        data=data_plan(preset, benchmark),
        model_name=model,
        model=model_config(preset, benchmark, model),
        training=training_config(preset, benchmark),
        seed=seed,
    )


def model_config(preset: PresetName, benchmark: BenchmarkName, model: ModelName) -> ModelConfig:
    """Return the settings of a model in a preset; ValueError if it is not made for the problem."""
    check_applies(benchmark, model)
    if preset == "matched":
        return _matched(benchmark, model)
    config = grid_model(preset, benchmark, model)
    if benchmark != "elasticity_p":
        return config
    # LSM and FNO work on as many features as they are wide; the others read and write some.
    small = preset in SMALL
    n_features = None if model in ("lsm", "fno") else 16 if small else 32
    points = PointCloudConfig(body=config, n_features=n_features)
    return replace(points, latent_shape=(32, 32), n_modes=10) if small else points


@cache
def _matched(benchmark: BenchmarkName, model: ModelName) -> ModelConfig:
    """Return the quick settings, as wide as it takes to have the parameters of the quick LSM."""
    config, reference = (model_config("quick", benchmark, name) for name in (model, "lsm"))
    if model == "lsm":
        return reference
    shape = one_application(data_plan("quick", benchmark).benchmark)
    return matched(config, parameters(reference, shape), shape)


def training_config(preset: PresetName, benchmark: BenchmarkName) -> TrainingConfig:
    """Return how a preset trains; `matched` differs from `quick` in its models alone."""
    if preset == "matched":
        return training_config("quick", benchmark)
    if preset == "smoke":
        config = TrainingConfig(epochs=4, batch_size=4, schedule="one_cycle", learning_rate=2e-3)
    elif preset == "quick":
        epochs, batch_size = QUICK_EPOCHS[benchmark]
        config = TrainingConfig(
            epochs=epochs, batch_size=batch_size, schedule="one_cycle", learning_rate=2e-3
        )
    elif preset == "paper":
        config = TrainingConfig(epochs=500)
    else:
        # The released loops count epochs 0 to 500.
        rate = 5e-4 if benchmark in RELEASED_SLOW else 1e-3
        config = TrainingConfig(epochs=501, learning_rate=rate)
    inputs, targets = _normalization(preset, benchmark)
    return replace(config, input_normalization=inputs, target_normalization=targets)


def _normalization(preset: PresetName, benchmark: BenchmarkName) -> tuple[Scheme, Scheme]:
    """Return the released choice for inputs and targets; small presets scale the others, too.

    With targets scaled point by point a model starts at their mean, from where it learns faster.
    Inputs are not: where a few samples agree by chance, another would be far out of range. Except
    for the airfoil, whose mesh reaches so far that the shape is invisible beside it: without scales
    of its own at each point no model gets below the error of the mean in a short training.
    """
    if benchmark in ("darcy", "plasticity"):
        return "pointwise", "pointwise"
    if preset not in SMALL or benchmark in PERIODIC:
        return "none", "none"
    if benchmark == "airfoil":
        return "pointwise", "pointwise"
    # Scattered points are in no order, and their positions stay where they are.
    return ("none", "channel") if benchmark == "elasticity_p" else ("channel", "pointwise")
