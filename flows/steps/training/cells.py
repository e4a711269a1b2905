"""The cells of a comparison: which experiments they are, and what came of those that failed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from flows.errors import BadInput
from flows.parameters import TrainingSetting
from flows.steps.data.datasets import recipe_of
from flows.steps.training.sources import code_digest
from flows.steps.training.starting import settings_like
from lsm_core.experiments.experiment import BoundExperiment, Experiment, Start
from lsm_core.experiments.plans import DataPlan, OfficialPlan
from lsm_core.experiments.presets import applies, check_applies, experiment
from lsm_core.experiments.protocols import Problem, Protocol
from lsm_core.models.catalogue import ModelConfig
from lsm_core.names import BenchmarkName, ModelName, Precision, PresetName, StudyName
from lsm_core.result import Failure
from lsm_core.studies.catalogue import study_cells
from storage.errors import translated
from storage.location import Location


def cell(
    preset: PresetName, benchmark: Problem, model: ModelName, seed: int = 0
) -> BoundExperiment:
    """Return a preset's cell."""
    return bind(experiment(preset, benchmark, model, seed))


def benchmark_cells(
    preset: PresetName,
    benchmarks: Sequence[Problem] | None,
    models: Sequence[ModelName] | None,
    seeds: Sequence[int],
    training: Mapping[TrainingSetting, Any] | None = None,
) -> list[BoundExperiment]:
    """Return every pair of benchmark and model that go together, once a seed; all if none named.

    With `training`, those settings of the preset are others. BadInput if models and benchmarks are
    named and none of them go together.
    """
    pairs = [
        (benchmark, model)
        for benchmark in benchmarks or get_args(BenchmarkName)
        for model in models or get_args(ModelName)
    ]
    with translated(ValueError, into=BadInput):
        fitting = [pair for pair in pairs if applies(*pair)]
    if not fitting:
        try:
            check_applies(*pairs[0])
        except ValueError as error:
            raise BadInput(str(error)) from error
    chosen = (experiment(preset, *pair, seed) for pair in fitting for seed in seeds)
    return [bind(changed(each, training or {})) for each in chosen]


def named_study_cells(
    name: StudyName,
    preset: PresetName,
    seeds: Sequence[int] | None,
    models: Sequence[ModelName] | None,
    rows: Sequence[str] | None,
    benchmarks: Sequence[Problem] | None,
    training: Mapping[TrainingSetting, Any],
) -> tuple[list[BoundExperiment], list[str]]:
    """Return the cells of a study, and what each is called there; BadInput if there is none."""
    with translated(ValueError, into=BadInput):
        wanted = study_cells(name, preset, seeds, models, rows, benchmarks)
    cells = [bind(changed(cell.experiment, training)) for cell in wanted]
    return cells, [in_words(training, cell.setting) for cell in wanted]


def computing(precision: Precision | None, compiled: bool) -> dict[TrainingSetting, Any]:
    """Return the settings of how numbers are computed, as far as they are asked for."""
    asked: dict[TrainingSetting, Any] = {} if precision is None else {"precision": precision}
    return {**asked, "compile": True} if compiled else asked


def changed(base: Experiment, training: Mapping[TrainingSetting, Any]) -> Experiment:
    """Return an experiment that trains in another way, and what it starts from, too."""
    if not training:
        return base
    changes: dict[str, Any] = {str(name): value for name, value in training.items()}
    start = base.start
    if start is not None and isinstance(start.source, Experiment):
        start = replace(start, source=changed(start.source, training))
    return replace(base, training=replace(base.training, **changes), start=start)


def in_words(training: Mapping[TrainingSetting, Any], setting: str = "") -> str:
    """Return what a cell with such settings is called: runs of two protocols are no two seeds."""
    changes = (f"{name} {value}" for name, value in training.items())
    return ", ".join(part for part in (setting, *changes) if part)


def chosen_cell(
    preset: PresetName,
    benchmark: Problem,
    model: ModelName,
    seed: int,
    *,
    source: Protocol | str | None = None,
    like: ModelConfig | None = None,
    training: Mapping[TrainingSetting, Any] | None = None,
    frozen: Sequence[str] = (),
) -> BoundExperiment:
    """Return a cell with settings of its own: a source to start from, other ways to train.

    The source is a problem, whose cell of the same preset, model and seed is trained first, or
    the identity of a finished run; `like` are the settings of its model, whose sizes are taken.
    BadInput for settings that do not exist or make no sense.
    """
    try:
        check_applies(benchmark, model)
        chosen = experiment(preset, benchmark, model, seed)
        if like is not None:
            chosen = replace(chosen, model=settings_like(chosen.model, like))
        changes: dict[str, Any] = {str(name): value for name, value in (training or {}).items()}
        chosen = replace(chosen, training=replace(chosen.training, **changes))
        if source is not None:
            named = next((name for name in get_args(BenchmarkName) if name == source), None)
            problem = source if isinstance(source, Protocol) else named
            origin = experiment(preset, problem, model, seed) if problem else str(source)
            chosen = replace(chosen, start=Start(source=origin, frozen=tuple(frozen)))
        elif frozen:
            raise ValueError("only parts of a model that starts from another run can be frozen")
    except (ValueError, TypeError) as error:
        raise BadInput(str(error)) from error
    return bind(chosen)


def bind(experiment: Experiment) -> BoundExperiment:
    """Return an experiment bound to its data's recipe and to today's sources, its source too."""
    source = experiment.start.source if experiment.start else None
    return BoundExperiment(
        **vars(experiment),
        dataset=recipe_of(experiment.data),
        code=code_digest(*_model_modules(experiment.model)),
        source=bind(source) if isinstance(source, Experiment) else source,
    )


def plans_of(cell: BoundExperiment) -> list[DataPlan]:
    """Return the data of a cell and of those that it starts from."""
    return [cell.data, *(plans_of(cell.source) if isinstance(cell.source, BoundExperiment) else ())]


def on_official_data(
    cell: BoundExperiment, plans: Mapping[DataPlan, OfficialPlan]
) -> BoundExperiment:
    """Return a cell on official data in place of its own, and so its source.

    BadInput if it chooses an epoch by validation samples and there are none.
    """
    return bind(_moved(cell.experiment, plans))


def _moved(experiment: Experiment, plans: Mapping[DataPlan, OfficialPlan]) -> Experiment:
    start, data = experiment.start, plans[experiment.data]
    if start is not None and isinstance(start.source, Experiment):
        start = replace(start, source=_moved(start.source, plans))
    if experiment.training.selection == "best_validation" and not data.n_validation:
        raise BadInput(
            f"the official files of {data.benchmark.name} leave no samples to validate on; take "
            "the last epoch (--selection last)"
        )
    return replace(experiment, data=data, start=start)


def _model_modules(config: ModelConfig) -> tuple[str, ...]:
    """Return the modules of a model and of the model inside it."""
    modules = (type(config).__module__,)
    body = getattr(config, "body", None)
    return modules if body is None else (*modules, *_model_modules(body))


def failed(cell: BoundExperiment, error: Any, study: str = "train", setting: str = "") -> Failure:
    """Return the record of a cell that did not end well."""
    return Failure(**vars(cell.outcome(study, setting)), error=f"{type(error).__name__}: {error}")


def keep_cell(cell: BoundExperiment, root: Location) -> None:
    """Keep what a cell is, so that a worker that knows its identity alone can train it."""
    kept = root / "experiments" / f"{cell.identity}.json"
    if not kept.exists():
        kept.write_bytes(json.dumps(_to_plain(cell), indent=1).encode())


def kept_cell(identity: str, root: Location) -> BoundExperiment:
    """Return the cell that is kept under an identity, bound to the sources of this machine.

    BadInput if there is none, or if the sources here would make another run of it.
    """
    kept = root / "experiments" / f"{identity}.json"
    try:
        cell = bind(_from_plain(json.loads(kept.read_bytes())))
    except FileNotFoundError:
        raise BadInput(f"{kept} is not there; submit the comparison that asks for it") from None
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{kept} was written by another version: {error}") from error
    if cell.identity != identity:
        raise BadInput(
            f"the sources of this worker make run {cell.identity} of what was asked for as "
            f"{identity}; give it the version that submitted the comparison"
        )
    return cell


def _to_plain(cell: BoundExperiment) -> dict[str, Any]:
    source = cell.source
    return {
        "protocol": cell.experiment.to_plain(),
        "seed": cell.seed,
        "source": _to_plain(source) if isinstance(source, BoundExperiment) else source,
    }


def _from_plain(plain: Mapping[str, Any]) -> Experiment:
    made = Experiment.from_plain(plain["protocol"], plain["seed"])
    source = plain["source"]
    if source is None:
        return made
    origin = source if isinstance(source, str) else _from_plain(source)
    return replace(made, start=Start(source=origin, frozen=tuple(plain["protocol"]["frozen"])))
