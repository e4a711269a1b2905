"""The tables of the paper."""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any, get_args

from lsm_core.names import BenchmarkName, ModelName

ABLATIONS = {
    "convolution projector": "rep_conv",
    "average pooling projector": "rep_avgpool",
    "self-attention projector": "rep_self_attention",
    "without projector": "wo_projector",
    "without multiscale": "wo_multiscale",
    "without patches": "wo_patchify",
    "without spectral solver": "wo_spectral",
    "lsm": "full",
}
SPECTRAL_ABLATIONS = {
    "perceptron solver": "mlp",
    "fourier solver": "fno",
    "polynomial solver": "polynomial",
}
"""What the variants of LSM are called in the paper's two tables."""
SWEEPS = {"tokens": "latent_tokens", "basis operators": "basis_operators", "scales": "scales"}


@cache
def published_tables() -> dict[str, Any]:
    """Return every table of the paper, by name."""
    text = (files("lsm_core.reporting") / "published_results.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def published_error(
    benchmark: BenchmarkName, model: ModelName, resolution: tuple[int, ...]
) -> float | None:
    """Return the paper's relative L2 error, or None where it has none.

    Burgers is published at several resolutions and nowhere else in the tables, so it is looked up
    at its own.
    """
    if benchmark == "burgers":
        return published_resolutions(benchmark, model).get(resolution[0])
    error = published_tables()["main_results"].get(model, {}).get(benchmark)
    return None if error is None else float(error)


def published_for(result: Mapping[str, Any]) -> float | None:
    """Return the paper's error of the very run that a result is of, or None where it has none.

    Runs of studies have the figures of the paper's tables of those studies: a variant of LSM, one
    of its settings, a resolution, a part of the data, a start from pipes.
    """
    benchmark, model = result["benchmark"], result["model"]
    setting, fraction = result.get("setting") or model, float(result.get("fraction", 1.0))
    if result.get("source") or fraction < 1.0:
        scratch, tuned = published_transfer(model) if benchmark == "airfoil" else ({}, {})
        if not result.get("source"):
            return scratch.get(fraction)
        # Only the study of transfer says that a run starts from pipes.
        return tuned.get(fraction) if setting.startswith(f"{model} fine-tuned") else None
    if re.fullmatch(rf"{model} at \d+", setting):
        return published_resolutions(benchmark, model).get(result["resolution"][0])
    swept = re.fullmatch(r"(\d+) (.+)", setting)
    if swept:
        is_published = benchmark == published_tables()["hyperparameters"]["benchmark"]
        return published_sweep(swept[2]).get(float(swept[1])) if is_published else None
    if setting == model or setting.startswith(f"{model} from scratch"):
        return published_error(benchmark, model, tuple(result["resolution"]))
    return published_ablation(benchmark, setting)


def published_ablation(benchmark: str, variant: str) -> float | None:
    """Return the paper's error of a variant of LSM, or None where it has none."""
    tables = published_tables()
    row = tables["ablations"].get(ABLATIONS.get(variant), {}).get("error", {})
    if variant in SPECTRAL_ABLATIONS:
        row = tables["spectral_block_ablations"][SPECTRAL_ABLATIONS[variant]]
    error = row.get(benchmark)
    return None if error is None else float(error)


def published_sweep(setting: str) -> dict[float, float]:
    """Return the paper's errors on elasticity_g by the value of one setting."""
    table = published_tables()["hyperparameters"].get(SWEEPS.get(setting))
    return _pairs(table["values"], table["error"]) if table else {}


def published_resolutions(benchmark: str, model: str) -> dict[float, float]:
    """Return the paper's errors by the points along an axis, empty where it has none."""
    table = published_tables().get(f"{benchmark}_resolutions", {})
    return _pairs(table["resolutions"], table[model]) if model in table else {}


def published_transfer(model: str) -> tuple[dict[float, float], dict[float, float]]:
    """Return the paper's errors on airfoil by the part of the data: from scratch, fine-tuned."""
    table = published_tables()["transfer_pipe_to_airfoil"]
    if model not in table:
        return {}, {}
    unit = float(table["unit"])
    scratch, tuned = (
        {part: round(unit * error, 6) for part, error in _pairs(table["fractions"], row).items()}
        for row in (table[model]["scratch"], table[model]["finetuned"])
    )
    return scratch, tuned


def published_deviation(benchmark: str) -> float | None:
    """Return within what the paper's five runs of LSM deviate, or None where it does not say."""
    value = published_tables()["std_over_five_runs"].get(benchmark)
    return None if value is None else float(value)


def efficiency_models() -> list[ModelName]:
    """Return the models of the paper's efficiency table, in its order."""
    table = published_tables()["efficiency"]
    return [model for model in table if model in get_args(ModelName)]


def efficiency_sizes() -> list[int]:
    """Return the points along a side in the paper's efficiency table."""
    return list(published_tables()["efficiency"]["sizes"])


def published_seconds(model: str) -> dict[float, float]:
    """Return the paper's seconds a training step by the points along a side."""
    return _published_costs(model, "s_per_iter")


def published_memory(model: str) -> dict[float, float]:
    """Return the paper's MiB of a graphics processor by the points along a side."""
    return _published_costs(model, "memory_MB")


def published_parameters(model: str) -> float | None:
    """Return the paper's number of parameters to a thousand, or None where it has none."""
    row = published_tables()["efficiency"].get(model)
    return None if row is None else 1e6 * float(row["params_MB"])


def published_mean_rank(model: str) -> float | None:
    """Return the mean place in the paper by the error, among the ten models of that table."""
    row = published_tables()["efficiency"].get(model)
    return None if row is None else fmean(row["ranking"])


def _published_costs(model: str, figure: str) -> dict[float, float]:
    table = published_tables()["efficiency"]
    return _pairs(table["sizes"], table[model][figure]) if model in table else {}


def _pairs(places: list[Any], values: list[Any]) -> dict[float, float]:
    found = zip(places, values, strict=True)
    return {float(place): float(value) for place, value in found if value is not None}
