"""What models cost, measured as the paper's efficiency table does."""

import platform
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from mlflow.entities import Metric

from flows.errors import BadInput, ProcessDied
from flows.settings import Settings
from flows.steps.reports.results import keep_cost, stored_costs
from flows.steps.training.devices import choose_device
from flows.steps.training.isolation import prepare_isolation
from flows.steps.training.run_record import milliseconds
from flows.steps.training.sources import code_digest
from lsm_core.evaluation.cost import measure_cost
from lsm_core.evaluation.roofline import count_work
from lsm_core.experiments.presets import model_config
from lsm_core.models.catalogue import MODELS, ModelConfig
from lsm_core.names import ModelName
from lsm_core.problems.shape import ProblemShape
from lsm_core.reporting.efficiency import Cost, Measurement
from lsm_core.reporting.estimates import EstimatedCost
from lsm_core.reporting.published_results import efficiency_models, efficiency_sizes
from storage.location import Location
from storage.tracking.echo import RunRecord, send_within_patience
from storage.tracking.store import open_tracking

N_REPEATS = 5
MEASURING = "lsm_core.evaluation.cost"


def measure_efficiency(
    models: Sequence[ModelName] | None,
    sizes: Sequence[int] | None,
    settings: Settings,
    progress: Any,
) -> tuple[list[Cost], list[str]]:
    """Return the cost of models at several sizes, and a sentence for each that could not be had.

    Models and sizes are those of the paper's table if none are named. Each cost is in the store and
    in MLflow as soon as it is known: the largest sizes take minutes. What was measured before on
    this machine, with today's sources, is not measured again. Where one fails, the others go on.
    """
    models = models or efficiency_models()
    wanted = list(_wanted(models, sizes or efficiency_sizes(), settings))
    prepare_isolation()  # processes are then forked from one that has imported torch
    known = {cost.key: cost for cost in stored_costs(settings.root)}
    failed = []
    for done, one in enumerate(wanted):
        progress.update("measure", done, len(wanted), one.name)
        if one.key in known:
            continue
        try:
            figures = measure_apart(one.model, one.form, one.size, settings.n_workers, one.device)
        except Exception as error:  # whatever a model fails with, the others are measured
            failed.append(f"{one.name}: {type(error).__name__}: {error}".splitlines()[0])
            continue
        measured = datetime.now(UTC).isoformat(timespec="seconds")
        known[one.key] = cost = Cost(**one.to_plain(), measured=measured, **figures)
        log_efficiency(cost, settings.tracking_uri, settings.root)
        keep_cost(settings.root, cost)
    progress.update("measure", len(wanted), len(wanted))
    return [known[one.key] for one in wanted if one.key in known], failed


def estimate_efficiency(
    models: Sequence[ModelName] | None, sizes: Sequence[int] | None, progress: Any
) -> list[EstimatedCost]:
    """Return what a step would cost on GPUs that are not here; by paper, nothing is measured."""
    wanted = [
        (size, model, form)
        for size in sorted(sizes or efficiency_sizes())
        for model, form in forms_of(models or efficiency_models())
    ]
    found = []
    for done, (size, model, form) in enumerate(wanted):
        progress.update("estimate", done, len(wanted), f"{model} ({form}) at {size} x {size}")
        shape = ProblemShape(space=(size, size), n_inputs=1, n_outputs=1)
        found.append(
            EstimatedCost.of(model, form, size, count_work(form_config(model, form), shape))
        )
    progress.update("estimate", len(wanted), len(wanted))
    return found


def measure_apart(
    model: ModelName, form: str, size: int, n_threads: int, device: str
) -> dict[str, Any]:
    """Return the cost of a model, measured in a process of its own.

    The system ends a process that wants more memory than there is; ProcessDied says so.
    """
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("forkserver")) as fresh:
        try:
            return fresh.submit(measure_one, model, form, size, n_threads, device).result()
        except BrokenProcessPool as error:
            raise ProcessDied(
                "its process was ended, which happens when memory runs out"
            ) from error


def measure_one(
    model: ModelName, form: str, size: int, n_threads: int, device: str
) -> dict[str, Any]:
    """Return the cost of a model on a field of size x size, one channel, batch 1."""
    torch.set_num_threads(n_threads)
    shape = ProblemShape(space=(size, size), n_inputs=1, n_outputs=1)
    config = form_config(model, form)
    return asdict(measure_cost(config, shape, batch_size=1, n_repeats=N_REPEATS, device=device))


def log_efficiency(cost: Cost, tracking_uri: str, root: Location) -> None:
    """Record a measurement as a run of its own, at the step that is its size.

    MLflow draws them against the size, whatever was measured first, last or twice.
    """
    tracking = open_tracking(tracking_uri, root, "efficiency")
    send_within_patience(tracking, cost_record(cost))


def cost_record(cost: Cost) -> RunRecord:
    """Return what MLflow is to have of a measurement."""
    name, plain = cost_name(cost), cost.to_plain()
    at = milliseconds(cost.measured) if cost.measured else 0  # older ones do not say
    figures = {k: v for k, v in plain.items() if isinstance(v, int | float) and k != "size"}
    return RunRecord(
        identity=f"efficiency-{name}-{cost.device}-{cost.machine}-{cost.measured}",
        name=name,
        started=at,
        tags={"suite": "efficiency", **{k: str(v) for k, v in plain.items() if k not in figures}},
        points=[Metric(f"cost/{k}", float(v), at, cost.size) for k, v in figures.items()],
        status="FINISHED",
        ended=at,
    )


def cost_name(cost: Cost) -> str:
    """Return what a measurement is called."""
    return f"{cost.model} {cost.form} {cost.size}"


def _wanted(
    models: Sequence[ModelName], sizes: Sequence[int], settings: Settings
) -> Iterator[Measurement]:
    """Yield what is to be measured and where, small fields first."""
    device = choose_device(settings.device).type
    machine = machine_name(settings.n_workers, device)
    for size in sorted(sizes):
        for model, form in forms_of(models):
            code = code_digest(type(form_config(model, form)).__module__, MEASURING)
            yield Measurement(
                model=model, form=form, size=size, device=device, machine=machine, code=code
            )


def forms_of(models: Sequence[ModelName]) -> Iterator[tuple[ModelName, str]]:
    """Yield models and their forms; LSM has two. BadInput for one that needs a history."""
    unfit = [model for model in models if MODELS[model].needs_history]
    if unfit:
        raise BadInput(
            "the efficiency study maps one field to another, and a history of frames is needed by "
            f"{' and '.join(unfit)}; name other models"
        )
    for model in models:
        for form in ("paper", "release") if model == "lsm" else ("release",):
            yield model, form


def machine_name(n_threads: int, device: str = "cpu") -> str:
    """Return what decides the seconds: the GPU, or the CPU and its threads in use.

    Not the name of the host, which a container has anew each time.
    """
    if device == "cuda":
        return torch.cuda.get_device_name()
    cpu = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.is_file():
        lines = described.read_text().splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        cpu = models[0] if models else cpu
    return f"{cpu}, {n_threads} {'thread' if n_threads == 1 else 'threads'}"


def form_config(model: ModelName, form: str) -> ModelConfig:
    """Return the settings that a model is measured with."""
    return model_config("paper" if form == "paper" else "release", "elasticity_g", model)
