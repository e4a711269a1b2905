"""Results side by side, with the paper's figure beside each that it has."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from lsm_core.reporting.origin import marked, origin_of
from lsm_core.reporting.published_results import published_for

HEADINGS = (
    "Benchmark",
    "Model",
    "Parameters",
    "Test relative L2",
    "Seconds per epoch",
    "Memory (MiB)",
    "Paper",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model on one benchmark, over its seeds."""

    benchmark: str
    resolution: tuple[int, ...]
    model: str
    n_parameters: int
    errors: tuple[float, ...]
    mean_prediction: float
    """Error of always predicting the mean of the training targets: the least to beat."""
    seconds_per_epoch: float
    peak_bytes: int
    """Most memory of a run: of its device, or of its whole process on a CPU."""
    published: float | None
    failures: tuple[str, ...] = ()
    origin: str = "generated"
    """Where the samples come from; errors on other samples do not compare."""

    @property
    def problem(self) -> str:
        """Return benchmark, grid and, unless it is generated, the kind of data."""
        grid = "×".join(str(size) for size in self.resolution)
        return f"{self.benchmark} ({marked(grid, self.origin)})"

    @property
    def error(self) -> float:
        """Return the mean over the seeds; infinite if every run failed."""
        return fmean(self.errors) if self.errors else float("inf")

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, in the order of HEADINGS."""
        published = "–" if self.published is None else f"{self.published:.5g}"
        if not self.errors:
            return (self.problem, self.model, "–", "failed", "–", "–", published)
        error = f"{self.error:.5f}"
        if len(self.errors) > 1:
            error += f" ± {stdev(self.errors):.5f}"
        if self.failures:
            error += f" ({len(self.failures)} failed)"
        return (
            self.problem,
            self.model,
            f"{self.n_parameters:,}",
            error,
            f"{self.seconds_per_epoch:.2f}",
            f"{self.peak_bytes / 2**20:,.0f}",
            published,
        )


def compare(results: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return one row a benchmark, kind of data and model; on each the best comes first."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for result in results:
        problem = (result["benchmark"], tuple(result["resolution"]), origin_of(result))
        groups.setdefault((*problem, row_name(result)), []).append(result)
    rows = [_row(group) for group in groups.values()]
    order = list(dict.fromkeys(row.problem for row in rows))
    return sorted(rows, key=lambda row: (order.index(row.problem), row.error))


def row_name(result: Mapping[str, Any]) -> str:
    """Return what a run is called in a table: its model, and its setting where it has one.

    Some settings begin with the model, which is not said twice. A run without a setting that has
    another start or less data than others says that.
    """
    model = str(result["model"])
    setting = str(result.get("setting") or "")
    setting = setting.removeprefix(model).strip() if setting else start_and_data(result)
    return f"{model} ({setting})" if setting else model


def start_and_data(result: Mapping[str, Any]) -> str:
    """Return whether a run started from another and had a part of the data; empty if neither."""
    fraction = float(result.get("fraction", 1.0))
    parts = ("fine-tuned" if result.get("source") else "", f"{fraction:.0%} of the data")
    return ", ".join(part for part in parts if part and part != "100% of the data")


def markdown_table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    rule = ("---", "---", "---:", "---:", "---:", "---:", "---:")
    lines: list[tuple[str, ...]] = [HEADINGS, rule, *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def text_table(rows: Sequence[Row]) -> str:
    """Return the rows for a terminal, and what they have to beat."""
    lines: list[tuple[str, ...]] = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(cells[i]) for cells in lines) for i in range(len(HEADINGS))]

    def aligned(cells: tuple[str, ...]) -> str:
        pairs = zip(cells, widths, range(len(cells)), strict=True)
        return "  ".join(t.ljust(w) if i < 2 else t.rjust(w) for t, w, i in pairs).rstrip()

    text = [aligned(lines[0]), "  ".join("─" * width for width in widths)]
    text += [aligned(cells) for cells in lines[1:]]
    means = {marked(row.benchmark, row.origin): row.mean_prediction for row in rows if row.errors}
    text += [f"Predicting the mean of {name}: {error:.4f}" for name, error in means.items()]
    return "\n".join(text)


def _row(group: list[Mapping[str, Any]]) -> Row:
    first = group[0]
    resolution = tuple(first["resolution"])
    done = [result for result in group if "error" not in result]
    return Row(
        benchmark=first["benchmark"],
        resolution=resolution,
        model=row_name(first),
        n_parameters=done[0]["parameters"] if done else 0,
        errors=tuple(result["test"]["rel_l2"] for result in done),
        mean_prediction=done[0]["mean_prediction"] if done else float("nan"),
        seconds_per_epoch=fmean(r["seconds_per_epoch"] for r in done) if done else float("nan"),
        peak_bytes=max((result.get("peak_bytes", 0) for result in done), default=0),
        published=published_for(first),
        failures=tuple(result["error"] for result in group if "error" in result),
        origin=origin_of(first),
    )
