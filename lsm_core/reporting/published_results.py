"""The tables of the paper."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from lsm_core.names import BenchmarkName, ModelName


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
    tables = published_tables()
    if benchmark == "burgers":
        table = tables["burgers_resolutions"]
        if model not in table or resolution[0] not in table["resolutions"]:
            return None
        return float(table[model][table["resolutions"].index(resolution[0])])
    error = tables["main_results"].get(model, {}).get(benchmark)
    return None if error is None else float(error)
