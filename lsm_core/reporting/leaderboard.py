"""All models on all benchmarks in one table, as the paper's main one, with ranks."""

from collections.abc import Callable, Sequence
from math import isfinite
from statistics import fmean

from lsm_core.reporting.comparison import Row
from lsm_core.reporting.table import Mark, Table

Places = dict[tuple[str, str], int]
MARKS: dict[int, Mark] = {1: "best", 2: "second"}


def ranks(rows: Sequence[Row]) -> Places:
    """Return the place of each model among those that finished, by benchmark and model."""
    return _places(rows, lambda row: row.error)


def published_ranks(rows: Sequence[Row]) -> Places:
    """Return the place that the published figures give each model among the models here."""
    return _places(rows, lambda row: float("inf") if row.published is None else row.published)


def leaderboard(rows: Sequence[Row]) -> str:
    """Return the table as Markdown."""
    return leaderboard_table(rows).markdown()


def leaderboard_table(rows: Sequence[Row], with_published: bool = False) -> Table:
    """Return a table with a line a model and a column a benchmark.

    The best error is bold, the second best in italics. Models are in the order of their mean rank
    over the benchmarks that they were run on. The published figures stand in brackets.
    """
    places, published = ranks(rows), published_ranks(rows)
    found = {(row.benchmark, row.model): row for row in rows}
    benchmarks = list(dict.fromkeys(row.benchmark for row in rows))
    models = sorted(
        dict.fromkeys(row.model for row in rows), key=lambda model: _mean_rank(places, model)
    )

    def text(benchmark: str, model: str) -> str:
        row = found.get((benchmark, model))
        if row is None:
            return ""
        shown = f"{row.error:.4f}" if row.errors else "failed"
        if not with_published:
            return shown
        return f"{shown} ({'–' if row.published is None else f'{row.published:.4g}'})"

    lines = []
    for model in models:
        cells = [text(benchmark, model) for benchmark in benchmarks]
        means = [_shown_rank(places, model)]
        means += [_shown_rank(published, model)] if with_published else []
        lines.append((model, *cells, *means))
    marks = {
        (i, j): MARKS[places[benchmark, model]]
        for i, model in enumerate(models)
        for j, benchmark in enumerate(benchmarks, start=1)
        if places.get((benchmark, model)) in MARKS
    }
    last = ("mean rank", "in the paper") if with_published else ("mean rank",)
    return Table(headings=("model", *benchmarks, *last), rows=tuple(lines), marks=marks)


def _places(rows: Sequence[Row], error: Callable[[Row], float]) -> Places:
    places: Places = {}
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        known = [row for row in rows if row.benchmark == benchmark and isfinite(error(row))]
        known.sort(key=error)
        places |= {(benchmark, row.model): place for place, row in enumerate(known, start=1)}
    return places


def _mean_rank(places: Places, model: str) -> float:
    own = [place for (_, name), place in places.items() if name == model]
    return fmean(own) if own else float("inf")


def _shown_rank(places: Places, model: str) -> str:
    rank = _mean_rank(places, model)
    return f"{rank:.1f}" if isfinite(rank) else "–"
