"""The board as a table for people and as lines for programs."""

import csv
import io
from collections.abc import Sequence

from lsm_core.reporting.board import Board, BoardRow
from lsm_core.reporting.tables import Mark, Table, shown, table_of
from lsm_core.reporting.task import DIVISIONS

COLUMNS = (
    *("task", "rank", "model", "error", "deviation", "worst", "p_above", "quantile_90"),
    *("claimed", "claimed_in", "claimed_date", "parameters", "updates", "flops", "seconds"),
    *("peak_mib", "seeds", "flags", "alarms"),
)


def board_table(board: Board) -> Table:
    """Return the rows of one task; those that share a rank are not told apart by its samples."""
    lines = [_line(row, board.rows) for row in board.rows]
    marks: dict[tuple[int, int], Mark] = {
        (number, 2): "best" for number, row in enumerate(board.rows) if row.rank == 1
    }
    task = board.task
    sizes = ", ".join(f"{size} {split}" for split, size in task.split.items())
    caption = (
        f"Task {task.id}: {task.benchmark}, preset {task.preset}, division {task.division} "
        f"({DIVISIONS[task.division]}). Data {task.dataset[:16]}; samples: {sizes}; inputs and "
        f"targets scaled: {', '.join(task.normalization)}. Error: mean relative L2 norm over the "
        "test samples, mean and deviation over seeds; worst: of the worst seed; 90 %: what nine of "
        "ten samples stay below. p is of a paired test, sample by sample, against the row above; a "
        "rank is shared (=) where p >= 0.05, or the difference is within one deviation over seeds. "
        "Claimed figures are on the published data. FLOPs, seconds and MiB are of the training."
    )
    return table_of(lines, caption, n_names=2, marks=marks, sortable=True, words=("flags",))


def _line(row: BoardRow, rows: Sequence[BoardRow]) -> dict[str, str]:
    n_same = sum(other.rank == row.rank for other in rows)
    return {
        "rank": f"{row.rank}{'=' if n_same > 1 else ''}",
        "model": row.model,
        "error": row.errors.text(),
        "worst": shown(row.worst),
        "p": shown(row.p_value, ".2g"),
        "90 %": shown(row.quantile),
        "claimed": row.claims[0].text() if row.claims else "–",
        "seeds": str(len(row.seeds)),
        "flags": ", ".join(row.flags) or "–",
        "parameters": f"{row.parameters:,}",
        "updates": f"{row.updates:,}",
        "FLOPs": "0" if row.flops == 0 else shown(row.flops, ".2e"),
        "seconds": f"{row.seconds:.0f}",
        "MiB": f"{row.peak_bytes / 2**20:.0f}" if row.peak_bytes else "–",
    }


def claims_table(board: Board) -> Table:
    """Return every claimed figure beside the measured one, with its source and date."""
    lines = [
        {
            "model": row.model,
            "source": claim.title,
            "date": claim.date,
            "claimed": f"{'~' if claim.approximate else ''}{claim.error:.4g}",
            "measured": row.errors.text(),
            "measured / claimed": f"{row.errors.mean / claim.error:.1f}",
            "rests on": claim.note or "–",
        }
        for row in board.rows
        for claim in row.claims
    ]
    said = (
        "Claimed on the published data, measured here: the quotient of the two says something of a "
        "model only where data and training are as long as the authors'."
    )
    return table_of(lines, said, n_names=3, words=("source", "rests on"))


def board_csv(board: Board) -> str:
    """Return one line a model, for programs and for keeping."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in board.rows:
        claim = row.claims[0] if row.claims else None
        writer.writerow(
            {
                "task": board.task.id,
                "rank": row.rank,
                "model": row.model,
                "error": f"{row.errors.mean:.6g}",
                "deviation": f"{row.errors.deviation:.3g}" if len(row.seeds) > 1 else "",
                "worst": f"{row.worst:.6g}",
                "p_above": "" if row.p_value is None else f"{row.p_value:.3g}",
                "quantile_90": "" if row.quantile is None else f"{row.quantile:.6g}",
                "claimed": claim.error if claim else "",
                "claimed_in": claim.title if claim else "",
                "claimed_date": claim.date if claim else "",
                "parameters": row.parameters,
                "updates": row.updates,
                "flops": "" if row.flops is None else f"{row.flops:.4g}",
                "seconds": f"{row.seconds:.1f}",
                "peak_mib": round(row.peak_bytes / 2**20),
                "seeds": " ".join(map(str, row.seeds)),
                "flags": "; ".join(row.flags),
                "alarms": "; ".join(row.alarms),
            }
        )
    return text.getvalue()
