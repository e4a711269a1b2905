"""The tables of the paper."""

import json
import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any, get_args

from lsm_core.names import ModelName
from lsm_core.result import Outcome


@cache
def published_tables() -> dict[str, Any]:
    """Return every table of the paper, by name; variants are called as in our studies."""
    text = (files("lsm_core.reporting") / "published_results.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def published_error(benchmark: str, model: str, resolution: tuple[int, ...]) -> float | None:
    """Return the paper's relative L2 error, or None where it has none.

    Burgers is published at several resolutions and nowhere else in the tables, so it is looked up
    at its own.
    """
    if benchmark == "burgers":
        return published_resolutions(benchmark, model).get(resolution[0])
    return published_tables()["main_results"].get(model, {}).get(benchmark)


def published_for(outcome: Outcome) -> float | None:
    """Return the paper's error of the very run that an outcome is of, or None where it has none.

    Runs of studies have the figures of the paper's tables of those studies: a variant of LSM, one
    of its settings, a resolution, a part of the data, a start from pipes.
    """
    benchmark, model, fraction = outcome.benchmark, outcome.model, outcome.fraction
    setting = outcome.setting or model
    if outcome.source or fraction < 1.0:
        scratch, tuned = published_transfer(model) if benchmark == "airfoil" else ({}, {})
        if not outcome.source:
            return scratch.get(fraction)
        # Only the study of transfer says that a run starts from pipes.
        return tuned.get(fraction) if setting.startswith(f"{model} fine-tuned") else None
    if re.fullmatch(rf"{model} at \d+", setting):
        return published_resolutions(benchmark, model).get(outcome.resolution[0])
    swept = re.fullmatch(r"(\d+) (.+)", setting)
    if swept:
        is_published = benchmark == published_tables()["hyperparameters"]["benchmark"]
        return published_sweep(swept[2]).get(float(swept[1])) if is_published else None
    if setting == model or setting.startswith(f"{model} from scratch"):
        return published_error(benchmark, model, outcome.resolution)
    return published_ablation(benchmark, setting)


def published_ablation(benchmark: str, variant: str) -> float | None:
    """Return the paper's error of a variant of LSM, or None where it has none."""
    tables = published_tables()
    solvers = tables["spectral_block_ablations"].get(variant, {})
    return tables["ablations"].get(variant, {}).get("error", solvers).get(benchmark)


def published_sweep(setting: str) -> dict[float, float]:
    """Return the paper's errors on elasticity_g by the value of one setting."""
    tables = published_tables()["hyperparameters"]
    return _pairs(tables[setting]["values"], tables[setting]["error"]) if setting in tables else {}


def published_resolutions(benchmark: str, model: str) -> dict[float, float]:
    """Return the paper's errors by the points along an axis, empty where it has none."""
    table = published_tables().get(f"{benchmark}_resolutions", {})
    return _pairs(table["resolutions"], table[model]) if model in table else {}


def published_transfer(model: str) -> tuple[dict[float, float], dict[float, float]]:
    """Return the paper's errors on airfoil by the part of the data: from scratch, fine-tuned."""
    table = published_tables()["transfer_pipe_to_airfoil"]
    if model not in table:
        return {}, {}
    parts, ways = table["fractions"], table[model]
    return _pairs(parts, ways["scratch"]), _pairs(parts, ways["finetuned"])


def published_deviation(benchmark: str) -> float | None:
    """Return within what the paper's five runs of LSM deviate, or None where it does not say."""
    return published_tables()["std_over_five_runs"].get(benchmark)


def efficiency_models() -> list[ModelName]:
    """Return the models of the paper's efficiency table, in its order."""
    table = published_tables()["efficiency"]
    return [model for model in table if model in get_args(ModelName)]


def efficiency_sizes() -> list[int]:
    """Return the points along a side in the paper's efficiency table."""
    return list(published_tables()["efficiency"]["sizes"])


@dataclass(frozen=True)
class PublishedCosts:
    """What a model costs in the paper: empty where it does not say."""

    seconds: dict[float, float] = field(default_factory=dict)
    """Of a training step, by the points along a side."""
    memory: dict[float, float] = field(default_factory=dict)
    """MiB of a GPU, by the points along a side."""
    parameters: float | None = None
    """To a thousand."""
    mean_rank: float | None = None
    """Mean place by the error, among the ten models of that table."""


def published_costs(model: str) -> PublishedCosts:
    """Return the paper's costs of a model."""
    table = published_tables()["efficiency"]
    if model not in table:
        return PublishedCosts()
    row, sizes = table[model], table["sizes"]
    return PublishedCosts(
        seconds=_pairs(sizes, row["s_per_iter"]),
        memory=_pairs(sizes, row["memory_MB"]),
        parameters=1e6 * float(row["params_MB"]),
        mean_rank=fmean(row["ranking"]),
    )


def _pairs(places: list[Any], values: list[Any]) -> dict[float, float]:
    found = zip(places, values, strict=True)
    return {float(place): float(value) for place, value in found if value is not None}
