"""What models cost, measured as the paper's efficiency table does."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from flows.settings import Settings
from flows.steps.stored_results import keep_costs
from flows.steps.training import open_tracking
from lsm_core.evaluation.cost import measure_cost
from lsm_core.experiments.presets import model_config
from lsm_core.names import ModelName
from lsm_core.problems.shape import ProblemShape
from storage.location import Location
from storage.provenance import environment

N_REPEATS = 5


def measure_one(model: ModelName, form: str, size: int) -> dict[str, Any]:
    """Return the cost of a model on a field of size x size, one channel, batch 1."""
    config = model_config("paper" if form == "paper" else "release", "elasticity_g", model)
    shape = ProblemShape(space=(size, size), n_inputs=1, n_outputs=1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cost = measure_cost(config, shape, batch_size=1, n_repeats=N_REPEATS, device=device)
    return {"model": model, "form": form, "size": size, "device": device, **asdict(cost)}


def measure_efficiency(
    models: Sequence[ModelName], sizes: Sequence[int], settings: Settings, progress: Any
) -> list[dict[str, Any]]:
    """Return the cost of models at several sizes.

    Each is in the store and in MLflow as soon as it is known: the largest sizes take minutes.
    """
    torch.set_num_threads(settings.n_workers)
    forms = {model: ("paper", "release") if model == "lsm" else ("release",) for model in models}
    cells = [(m, form, size) for m in models for form in forms[m] for size in sizes]
    costs = []
    for done, (model, form, size) in enumerate(cells):
        progress.update("measure", done, len(cells), f"{model} ({form}) at {size} x {size}")
        costs.append(measure_one(model, form, size))
        log_efficiency(costs[-1:], settings.tracking_uri, settings.root)
        keep_costs(settings.root, costs[-1:])
    progress.update("measure", len(cells), len(cells))
    return costs


def log_efficiency(costs: Sequence[dict[str, Any]], tracking_uri: str, root: Location) -> None:
    """Record every cost as a run, so that MLflow can draw them against the size."""
    tracking = open_tracking(tracking_uri, root, "efficiency")
    for cost in costs:
        machine = "-".join(str(value) for value in environment().values())
        name = f"{cost['model']} {cost['form']}"
        run = tracking.open_run(
            f"efficiency-{name}-{cost['device']}-{machine}",
            name,
            {"suite": "efficiency", "model": cost["model"], "device": cost["device"]},
        )
        figures = {k: v for k, v in cost.items() if isinstance(v, int | float) and k != "size"}
        run.log(cost["size"], {f"cost/{name}": value for name, value in figures.items()})
        run.finish()
