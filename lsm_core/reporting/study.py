"""The table of a study."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from lsm_core.reporting.seeds import OverSeeds, Result, finished, grouped
from lsm_core.reporting.table import Table

PARTS = ("validation", "test")


def study_table(results: Sequence[dict[str, Any]]) -> str:
    """Return settings and their errors as Markdown, mean and deviation over the seeds."""
    return setting_table(results).markdown()


def setting_table(results: Sequence[Result]) -> Table:
    """Return settings and their errors, mean and deviation over the seeds."""
    lines: list[tuple[str, ...]] = []
    groups = grouped(results, lambda result: (str(result["benchmark"]), _name(result)))
    for (benchmark, setting), some in groups.items():
        done = finished(some)
        if not done:
            lines.append((benchmark, setting, "failed", "failed", "", ""))
            continue
        errors = [OverSeeds(tuple(r[part]["rel_l2"] for r in done if r[part])) for part in PARTS]
        shown = [spread.text() if spread.values else "" for spread in errors]
        seconds = mean(result["seconds_per_epoch"] for result in done)
        lines.append((benchmark, setting, *shown, f"{done[0]['parameters']:,}", f"{seconds:.2f}"))
    return Table(
        headings=("benchmark", "setting", "validation", "test", "parameters", "s/epoch"),
        rows=tuple(lines),
        n_names=2,
    )


def _name(result: Result) -> str:
    return str(result.get("setting") or result["model"])
