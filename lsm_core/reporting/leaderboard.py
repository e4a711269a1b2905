"""All models on all benchmarks in one table, as the paper's main one, with ranks."""

from collections.abc import Sequence
from math import isfinite
from statistics import fmean

from lsm_core.reporting.comparison import Row


def ranks(rows: Sequence[Row]) -> dict[tuple[str, str], int]:
    """Return the place of each model among those that finished, by benchmark and model."""
    places: dict[tuple[str, str], int] = {}
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        done = [row for row in rows if row.benchmark == benchmark and isfinite(row.error)]
        done.sort(key=lambda row: row.error)
        places |= {(benchmark, row.model): place for place, row in enumerate(done, start=1)}
    return places


def leaderboard(rows: Sequence[Row]) -> str:
    """Return a Markdown table with a line a model and a column a benchmark.

    The best error is bold, the second best in italics. Models are in the order of their mean rank
    over the benchmarks that they were run on.
    """
    places = ranks(rows)
    found = {(row.benchmark, row.model): row for row in rows}
    benchmarks = list(dict.fromkeys(row.benchmark for row in rows))

    def mean_rank(model: str) -> float:
        own = [place for (_, name), place in places.items() if name == model]
        return fmean(own) if own else float("inf")

    def text(benchmark: str, model: str) -> str:
        row = found.get((benchmark, model))
        if row is None:
            return ""
        if not row.errors:
            return "failed"
        mark = {1: "**", 2: "*"}.get(places[benchmark, model], "")
        return f"{mark}{row.error:.4f}{mark}"

    models = sorted(dict.fromkeys(row.model for row in rows), key=mean_rank)
    lines = [
        f"| model | {' | '.join(benchmarks)} | mean rank |",
        f"|---|{'---:|' * len(benchmarks)}---:|",
    ]
    for model in models:
        cells = " | ".join(text(benchmark, model) for benchmark in benchmarks)
        rank = f"{mean_rank(model):.1f}" if isfinite(mean_rank(model)) else "–"
        lines.append(f"| {model} | {cells} | {rank} |")
    return "\n".join(lines)
