"""The cells of a comparison: which experiment they are, where they run and what came of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from flows.errors import BadInput
from flows.parameters import TrainingSetting
from flows.steps.datasets import recipe_of
from flows.steps.run_record import result_head
from flows.steps.sources import source_digest
from flows.steps.training import Workplace
from lsm_core.experiments.applicability import applies, check_applies
from lsm_core.experiments.data_plan import DataPlan
from lsm_core.experiments.experiment import Experiment, Start
from lsm_core.experiments.official_plan import OfficialPlan
from lsm_core.experiments.presets import experiment
from lsm_core.models.catalogue import ModelConfig
from lsm_core.names import BenchmarkName, ModelName, PresetName
from storage.location import Location

if TYPE_CHECKING:
    from flows.settings import Settings


def cell(preset: PresetName, benchmark: BenchmarkName, model: ModelName, seed: int) -> Experiment:
    """Return the experiment of a preset's cell, bound to its data's recipe and today's sources."""
    return bound(experiment(preset, benchmark, model, seed))


def benchmark_cells(
    preset: PresetName,
    benchmarks: Sequence[BenchmarkName] | None,
    models: Sequence[ModelName] | None,
    seeds: Sequence[int],
) -> list[Experiment]:
    """Return every pair of benchmark and model that go together, once a seed; all if none named.

    BadInput if models and benchmarks are named and none of them go together.
    """
    pairs = [
        (benchmark, model)
        for benchmark in benchmarks or get_args(BenchmarkName)
        for model in models or get_args(ModelName)
    ]
    fitting = [pair for pair in pairs if applies(*pair)]
    if not fitting:
        try:
            check_applies(*pairs[0])
        except ValueError as error:
            raise BadInput(str(error)) from error
    return [cell(preset, *pair, seed) for pair in fitting for seed in seeds]


def chosen_cell(
    preset: PresetName,
    benchmark: BenchmarkName,
    model: ModelName,
    seed: int,
    *,
    source: str | None = None,
    training: Mapping[TrainingSetting, Any] | None = None,
    frozen: Sequence[str] = (),
) -> Experiment:
    """Return a cell with settings of its own: a source to start from, other ways to train.

    The source is a benchmark, whose cell of the same preset, model and seed is trained first, or
    the identity of a finished run. BadInput for settings that do not exist or make no sense.
    """
    try:
        check_applies(benchmark, model)
        chosen = experiment(preset, benchmark, model, seed)
        changes: dict[str, Any] = {str(name): value for name, value in (training or {}).items()}
        chosen = replace(chosen, training=replace(chosen.training, **changes))
        if source is not None:
            named = next((name for name in get_args(BenchmarkName) if name == source), None)
            origin = experiment(preset, named, model, seed) if named else source
            chosen = replace(chosen, start=Start(source=origin, frozen=tuple(frozen)))
        elif frozen:
            raise ValueError("only parts of a model that starts from another run can be frozen")
    except (ValueError, TypeError) as error:
        raise BadInput(str(error)) from error
    return bound(chosen)


def bound(unbound: Experiment) -> Experiment:
    """Return an experiment bound to its data's recipe and to today's sources, its source too."""
    start = unbound.start
    if start is not None and isinstance(start.source, Experiment):
        start = replace(start, source=bound(start.source))
    return replace(
        unbound,
        start=start,
        dataset=recipe_of(unbound.data),
        code=source_digest(
            *_model_modules(unbound.model),
            "flows.steps.training",
            leaving_out=("lsm_core.models.catalogue", "lsm_core.benchmarks.catalogue"),
        ),
    )


def plans_of(experiment: Experiment) -> list[DataPlan]:
    """Return the data of an experiment and of those that it starts from."""
    source = experiment.start.source if experiment.start else None
    return [experiment.data, *(plans_of(source) if isinstance(source, Experiment) else ())]


def on_official_data(experiment: Experiment, plans: Mapping[DataPlan, OfficialPlan]) -> Experiment:
    """Return an experiment bound to official data in place of its own, and so its source.

    BadInput if it chooses an epoch by validation samples and there are none.
    """
    start, data = experiment.start, plans[experiment.data]
    if start is not None and isinstance(start.source, Experiment):
        start = replace(start, source=on_official_data(start.source, plans))
    if experiment.training.selection == "best_validation" and not data.n_validation:
        raise BadInput(
            f"the official files of {data.benchmark.name} leave no samples to validate on; take "
            "the last epoch (--selection last)"
        )
    return bound(replace(experiment, data=data, start=start))


def _model_modules(config: ModelConfig) -> tuple[str, ...]:
    """Return the modules of a model and of the model inside it."""
    modules = (type(config).__module__,)
    body = getattr(config, "body", None)
    return modules if body is None else (*modules, *_model_modules(body))


def workplace(
    settings: "Settings", dataset_url: str, suite: str, n_threads: int, setting: str = ""
) -> Workplace:
    """Return where a cell finds its data and leaves its results."""
    return Workplace(
        root=settings.root,
        dataset=Location(dataset_url),
        tracking_uri=settings.tracking_uri,
        suite=suite,
        setting=setting,
        n_threads=n_threads,
        device=settings.device,
        memory=settings.memory,
    )


def is_finished(experiment: Experiment, place: Workplace) -> bool:
    """Return whether a cell was trained before."""
    return place.checkpoints(experiment).result() is not None


def failed(experiment: Experiment, error: Any) -> dict[str, Any]:
    """Return the record of a cell that did not end well."""
    return {**result_head(experiment), "error": f"{type(error).__name__}: {error}"}


def slots(n_cells: int, n_workers: int) -> int:
    """Return how many trainings run at once: as many as cores, or one where there is a GPU."""
    import torch

    return 1 if torch.cuda.is_available() else max(1, min(n_cells, n_workers))
