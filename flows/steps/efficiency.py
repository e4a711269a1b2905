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

from flows.errors import BadInput, ProcessDied
from flows.settings import Settings
from flows.steps.isolation import prepare_isolation
from flows.steps.sources import source_digest
from flows.steps.stored_results import keep_costs, stored_costs
from flows.steps.training import open_tracking
from lsm_core.evaluation.cost import measure_cost
from lsm_core.experiments.presets import model_config
from lsm_core.models.catalogue import ModelConfig
from lsm_core.names import TIME_STEPPING, ModelName
from lsm_core.problems.shape import ProblemShape
from lsm_core.reporting.published_results import efficiency_models, efficiency_sizes
from storage.location import Location

N_REPEATS = 5
WHAT_A_COST_IS = ("model", "form", "size", "device", "machine", "code")
"""A cost that agrees in all of these was measured before."""


def measure_efficiency(
    models: Sequence[ModelName] | None,
    sizes: Sequence[int] | None,
    settings: Settings,
    progress: Any,
) -> list[dict[str, Any]]:
    """Return the cost of models at several sizes: those of the paper's table if none are named.

    Each is in the store and in MLflow as soon as it is known: the largest sizes take minutes. What
    was measured before on this machine, with today's sources, is not measured again. Where a model
    fails, there is an `error` instead of figures, and the others go on.
    """
    models = models or efficiency_models()
    _require_one_field(models)
    prepare_isolation()  # processes are then forked from one that has imported torch
    known = {_key(cost): cost for cost in stored_costs(settings.root)}
    cells = list(_cells(models, sizes or efficiency_sizes(), settings.n_workers))
    costs = []
    for done, cell in enumerate(cells):
        name = cost_name(cell)
        progress.update("measure", done, len(cells), name)
        if _key(cell) not in known:
            cost = _measured(cell, settings.n_workers)
            if "error" not in cost:
                log_efficiency([cost], settings.tracking_uri, settings.root)
                keep_costs(settings.root, [cost])
            known[_key(cell)] = cost
        costs.append(known[_key(cell)])
    progress.update("measure", len(cells), len(cells))
    return costs


def failure_sentence(costs: Sequence[dict[str, Any]]) -> str:
    """Return which measurements failed, and with what; nothing if none did."""
    failed = [f"{cost_name(cost)}: {cost['error']}" for cost in costs if "error" in cost]
    if not failed:
        return ""
    return f"{len(failed)} of {len(costs)} measurements failed: {'; '.join(failed)}"


def cost_name(cost: dict[str, Any]) -> str:
    """Return what was measured, in words."""
    return f"{cost['model']} ({cost['form']}) at {cost['size']} x {cost['size']}"


def measure_apart(model: ModelName, form: str, size: int, n_threads: int) -> dict[str, Any]:
    """Return the cost of a model, measured in a process of its own.

    The system ends a process that wants more memory than there is; ProcessDied says so.
    """
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("forkserver")) as fresh:
        try:
            return fresh.submit(measure_one, model, form, size, n_threads).result()
        except BrokenProcessPool as error:
            raise ProcessDied(
                "its process was ended, which happens when memory runs out"
            ) from error


def measure_one(model: ModelName, form: str, size: int, n_threads: int) -> dict[str, Any]:
    """Return the cost of a model on a field of size x size, one channel, batch 1."""
    torch.set_num_threads(n_threads)
    shape = ProblemShape(space=(size, size), n_inputs=1, n_outputs=1)
    config, device = _config(model, form), _device()
    return asdict(measure_cost(config, shape, batch_size=1, n_repeats=N_REPEATS, device=device))


def log_efficiency(costs: Sequence[dict[str, Any]], tracking_uri: str, root: Location) -> None:
    """Record every measurement as a run of its own, at the step that is its size.

    MLflow draws them against the size, whatever was measured first, last or twice.
    """
    tracking = open_tracking(tracking_uri, root, "efficiency")
    for cost in costs:
        name = f"{cost['model']} {cost['form']} {cost['size']}"
        run = tracking.open_run(
            f"efficiency-{name}-{cost['device']}-{cost['machine']}-{cost['measured']}",
            name,
            {
                "suite": "efficiency",
                **{key: str(cost[key]) for key in (*WHAT_A_COST_IS, "measured")},
            },
        )
        figures = {k: v for k, v in cost.items() if isinstance(v, int | float) and k != "size"}
        run.log(cost["size"], {f"cost/{name}": value for name, value in figures.items()})
        run.finish()


def _require_one_field(models: Sequence[ModelName]) -> None:
    unfit = [model for model in models if model in TIME_STEPPING]
    if unfit:
        raise BadInput(
            "the efficiency study maps one field to another, and a history of frames is needed by "
            f"{' and '.join(unfit)}; name other models"
        )


def _cells(
    models: Sequence[ModelName], sizes: Sequence[int], n_threads: int
) -> Iterator[dict[str, Any]]:
    """Yield what is to be measured and where, small fields first."""
    here = {"device": _device(), "machine": machine_name(n_threads)}
    for size in sorted(sizes):
        for model in models:
            for form in ("paper", "release") if model == "lsm" else ("release",):
                code = source_digest(
                    type(_config(model, form)).__module__,
                    "lsm_core.evaluation.cost",
                    leaving_out=("lsm_core.models.catalogue",),
                )
                yield {"model": model, "form": form, "size": size, **here, "code": code}


def _measured(cell: dict[str, Any], n_threads: int) -> dict[str, Any]:
    try:
        figures = measure_apart(cell["model"], cell["form"], cell["size"], n_threads)
    except Exception as error:  # whatever a model fails with, the others are measured
        return {**cell, "error": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {**cell, "measured": datetime.now(UTC).isoformat(timespec="seconds"), **figures}


def machine_name(n_threads: int) -> str:
    """Return what decides the seconds: the graphics processor, or the CPU and its threads in use.

    Not the name of the host, which a container has anew each time.
    """
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cpu = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.is_file():
        lines = described.read_text().splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        cpu = models[0] if models else cpu
    return f"{cpu}, {n_threads} {'thread' if n_threads == 1 else 'threads'}"


def _config(model: ModelName, form: str) -> ModelConfig:
    return model_config("paper" if form == "paper" else "release", "elasticity_g", model)


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _key(cost: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cost.get(name) for name in WHAT_A_COST_IS)
