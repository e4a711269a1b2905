"""The cells of a comparison: which experiment they are, where they run and what came of them."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flows.steps.datasets import schema_of
from flows.steps.sources import source_digest
from flows.steps.training import Workplace
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.presets import experiment
from lsm_core.names import BenchmarkName, ModelName, PresetName
from storage.location import Location

if TYPE_CHECKING:
    from flows.settings import Settings


def cell(preset: PresetName, benchmark: BenchmarkName, model: ModelName, seed: int) -> Experiment:
    """Return the experiment of a cell, bound to its data's recipe and to today's sources."""
    unbound = experiment(preset, benchmark, model, seed)
    return replace(
        unbound,
        dataset=schema_of(unbound.data).recipe,
        code=source_digest(
            type(unbound.model).__module__,
            "flows.steps.training",
            leaving_out=("lsm_core.models.catalogue", "lsm_core.benchmarks.catalogue"),
        ),
    )


def workplace(settings: "Settings", dataset_url: str, suite: str, n_threads: int) -> Workplace:
    """Return where a cell finds its data and leaves its results."""
    return Workplace(
        root=settings.root,
        dataset=Location(dataset_url),
        tracking_uri=settings.tracking_uri,
        suite=suite,
        n_threads=n_threads,
    )


def is_finished(experiment: Experiment, place: Workplace) -> bool:
    """Return whether a cell was trained before."""
    return place.checkpoints(experiment).result() is not None


def failed(experiment: Experiment, error: Any) -> dict[str, Any]:
    """Return the record of a cell that did not end well."""
    return {
        "identity": experiment.identity,
        "protocol": experiment.protocol,
        "preset": experiment.preset,
        "benchmark": experiment.data.benchmark.name,
        "resolution": list(experiment.data.benchmark.shape.space),
        "model": experiment.model_name,
        "seed": experiment.seed,
        "error": f"{type(error).__name__}: {error}",
    }


def slots(n_cells: int, n_workers: int) -> int:
    """Return how many trainings run at once: as many as cores, or one where there is a GPU."""
    import torch

    return 1 if torch.cuda.is_available() else max(1, min(n_cells, n_workers))
