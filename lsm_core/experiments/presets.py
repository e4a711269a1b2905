"""The presets: what is trained on which data, and how."""

from dataclasses import replace
from functools import cache
from typing import get_args

from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.matched_sizes import matched, one_application, parameters
from lsm_core.experiments.protocols import PROTOCOLS, data_plan
from lsm_core.models.catalogue import MODELS, ModelConfig
from lsm_core.models.entry import Task
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import BenchmarkName, ModelName, PresetName
from lsm_core.training.config import TrainingConfig

SMALL: tuple[PresetName, ...] = ("smoke", "quick")


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


def applies(benchmark: BenchmarkName, model: ModelName) -> bool:
    """Return whether a model is made for a benchmark.

    Models of time steps need a history; all others take any grid, and points through a latent one.
    """
    return not MODELS[model].needs_history or PROTOCOLS[benchmark].steps_through_time


def check_applies(benchmark: BenchmarkName, model: ModelName) -> None:
    """Raise a ValueError that says why a model is not made for a benchmark."""
    if not applies(benchmark, model):
        fitting = [name for name, protocol in PROTOCOLS.items() if protocol.steps_through_time]
        raise ValueError(
            f"{model} predicts time steps and is made for {' and '.join(fitting)}, "
            f"not for {benchmark}"
        )


def applicable_models(benchmark: BenchmarkName) -> list[ModelName]:
    """Return the models that are made for a benchmark, in the order of their names' table."""
    return [model for model in get_args(ModelName) if applies(benchmark, model)]


def model_config(preset: PresetName, benchmark: BenchmarkName, model: ModelName) -> ModelConfig:
    """Return the settings of a model in a preset; ValueError if it is not made for the problem."""
    check_applies(benchmark, model)
    if preset == "matched":
        return _matched(benchmark, model)
    entry, protocol, small = MODELS[model], PROTOCOLS[benchmark], preset in SMALL
    # Those that work on as many features as they are wide have no choice; the others have one.
    n_features = None if entry.latent else 16 if small else 32
    config = entry.preset(
        Task(
            preset=preset,
            n_dims=2 if protocol.is_scattered else len(protocol.published.benchmark.space),
            is_periodic=protocol.is_periodic,
            steps_through_time=protocol.steps_through_time,
            quick_modes=protocol.quick_modes,
            released_width=protocol.released_width,
        )
    )
    if not protocol.is_scattered:
        return config
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
    protocol = PROTOCOLS[benchmark]
    inputs, targets = protocol.scaled_small if preset in SMALL else protocol.scaled
    config = TrainingConfig(input_normalization=inputs, target_normalization=targets)
    if preset == "paper":
        return replace(config, epochs=500)
    if preset == "release":
        # The released loops count epochs 0 to 500.
        return replace(config, epochs=501, learning_rate=protocol.released_rate)
    smoke, quick = (4, 4), (protocol.quick_epochs, protocol.quick_batch)
    epochs, batch_size = smoke if preset == "smoke" else quick
    return replace(
        config, epochs=epochs, batch_size=batch_size, schedule="one_cycle", learning_rate=2e-3
    )
