"""The main table: what was measured, what is published, and what differs between the two."""

from collections.abc import Sequence
from typing import Any

from lsm_core.reporting.charts import cost_scatter
from lsm_core.reporting.comparison import Row
from lsm_core.reporting.document import Block, Picture
from lsm_core.reporting.leaderboard import leaderboard_table, published_ranks, ranks
from lsm_core.reporting.protocol import protocol_table
from lsm_core.reporting.seeds import OverSeeds, Result, difference, finished
from lsm_core.reporting.table import Table


def main_blocks(results: Sequence[Result], rows: Sequence[Row]) -> list[Block]:
    """Return the tables of a benchmark and what its protocol differs in."""
    board = leaderboard_table(rows, with_published=True)
    caption = (
        "Mean relative L2 error over the test samples, the published figure in brackets; best "
        "bold, second best in italics. Ranks in the paper are among the models that stand here."
    )
    done = finished(results)
    return [
        Table(headings=board.headings, rows=board.rows, marks=board.marks, caption=caption),
        *([protocol_table(done)] if done else []),
        comparison_table(rows),
    ]


def comparison_table(rows: Sequence[Row]) -> Table:
    """Return every model on every benchmark with mean, deviation, difference and ranks."""
    places, published = ranks(rows), published_ranks(rows)
    lines, marks = [], {}
    for number, row in enumerate(rows):
        key = row.benchmark, row.model
        if places.get(key) == 1:
            marks[number, 3] = "best"
        known = "–" if row.published is None else f"{row.published:.4g}"
        lines.append(
            (
                row.problem,
                row.model,
                str(places.get(key, "–")),
                _error(row),
                known,
                difference(row.error, row.published) if row.errors else "–",
                str(published.get(key, "–")),
                *_costs(row),
            )
        )
    beaten = {row.benchmark: row.mean_prediction for row in rows if row.errors}
    least = ", ".join(f"{name} {error:.3f}" for name, error in beaten.items())
    return Table(
        headings=(
            "benchmark",
            "model",
            "rank",
            "error",
            "paper",
            "difference",
            "rank, paper",
            "parameters",
            "s/epoch",
            "MiB",
        ),
        rows=tuple(lines),
        n_names=2,
        marks=marks,  # type: ignore[arg-type]
        caption=(
            "Mean and standard deviation over the seeds, and how far the mean is above the "
            f"published figure. Always predicting the mean of the training targets gives: {least}."
        ),
    )


def scatter_pictures(rows: Sequence[Row], preset: str) -> list[Picture]:
    """Return error against time at a preset for every benchmark with two models or more."""
    pictures = []
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        own = {
            row.model: (row.seconds_per_epoch, row.error, float(row.n_parameters))
            for row in rows
            if row.benchmark == benchmark and row.errors
        }
        if len(own) > 1:
            caption = (
                f"{benchmark}, preset {preset}: test error against seconds an epoch; the area of "
                "a disc grows with the number of parameters. Below and to the left is better."
            )
            pictures.append(Picture(cost_scatter(own), caption))
    return pictures


def _error(row: Row) -> str:
    text = OverSeeds(row.errors).text()
    return f"{text} ({len(row.failures)} failed)" if row.errors and row.failures else text


def _costs(row: Row) -> tuple[Any, ...]:
    if not row.errors:
        return "–", "–", "–"
    memory = f"{row.peak_bytes / 2**20:,.0f}"
    return f"{row.n_parameters:,}", f"{row.seconds_per_epoch:.2f}", memory
