"""All models on all benchmarks in one table, as the paper's main one, with ranks."""

from collections.abc import Sequence
from math import isfinite
from statistics import fmean

from lsm_core.reporting.comparison import Row
from lsm_core.reporting.ranking import places_within
from lsm_core.reporting.table import Mark, Table

Places = dict[tuple[str, str], int]
MARKS: dict[int, Mark] = {1: "best", 2: "second"}


def ranks(rows: Sequence[Row]) -> Places:
    """Return the place of each model among those that finished, by benchmark and model."""
    return places_within({(row.benchmark, row.model): row.error for row in rows})


def published_ranks(rows: Sequence[Row]) -> Places:
    """Return the place that the published figures give each model among the models here."""
    return places_within({(row.benchmark, row.model): row.published for row in rows})


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
        dict.fromkeys(row.model for row in rows), key=lambda model: mean_rank(places, model)
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
        means = [shown_rank(places, model)]
        means += [shown_rank(published, model)] if with_published else []
        lines.append((model, *cells, *means))
    marks = {
        (i, j): MARKS[places[benchmark, model]]
        for i, model in enumerate(models)
        for j, benchmark in enumerate(benchmarks, start=1)
        if places.get((benchmark, model)) in MARKS
    }
    last = ("mean rank", "in the paper") if with_published else ("mean rank",)
    return Table(headings=("model", *benchmarks, *last), rows=tuple(lines), marks=marks)


def mean_rank(places: Places, model: str) -> float:
    """Return the mean place of a model over its benchmarks; infinite if it has none."""
    own = [place for (_, name), place in places.items() if name == model]
    return fmean(own) if own else float("inf")


def shown_rank(places: Places, model: str) -> str:
    """Return the mean place of a model as text."""
    rank = mean_rank(places, model)
    return f"{rank:.1f}" if isfinite(rank) else "–"
