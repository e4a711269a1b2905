"""Which model is made for which benchmark; free of torch, so that asking is quick."""

from typing import get_args

from lsm_core.names import TIME_STEPPING, BenchmarkName, ModelName

STEPS_THROUGH_TIME: tuple[BenchmarkName, ...] = ("navier_stokes",)
"""Problems whose frames are predicted one from those before it."""


def applies(benchmark: BenchmarkName, model: ModelName) -> bool:
    """Return whether a model is made for a benchmark.

    Models of time steps need a history; all others take any grid, and points through a latent one.
    """
    return model not in TIME_STEPPING or benchmark in STEPS_THROUGH_TIME


def check_applies(benchmark: BenchmarkName, model: ModelName) -> None:
    """Raise a ValueError that says why a model is not made for a benchmark."""
    if not applies(benchmark, model):
        raise ValueError(
            f"{model} predicts time steps and is made for {' and '.join(STEPS_THROUGH_TIME)}, "
            f"not for {benchmark}"
        )


def applicable_models(benchmark: BenchmarkName) -> list[ModelName]:
    """Return the models that are made for a benchmark, in the order of their names' table."""
    return [model for model in get_args(ModelName) if applies(benchmark, model)]
