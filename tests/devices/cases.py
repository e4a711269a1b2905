"""Which models are tried on which benchmarks."""

from lsm_core.experiments.presets import applies
from lsm_core.models.catalogue import MODELS
from lsm_core.names import BenchmarkName, ModelName

TRAINED: list[ModelName] = [name for name, entry in MODELS.items() if not entry.is_fitted]
"""The models that take steps; the others are computed from the samples, once."""


def default_benchmark(model: ModelName) -> BenchmarkName:
    """Return Darcy flow, or Navier-Stokes for a model that needs a history."""
    return "darcy" if applies("darcy", model) else "navier_stokes"


def cases(
    models: list[ModelName], benchmarks: list[BenchmarkName]
) -> list[tuple[ModelName, BenchmarkName]]:
    """Return every model on the benchmarks that it applies to, or on its own if none is named."""
    return [
        (model, benchmark)
        for model in models
        for benchmark in benchmarks or [default_benchmark(model)]
        if applies(benchmark, model)
    ]
