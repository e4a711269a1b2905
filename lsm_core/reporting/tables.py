"""Tables of text, as HTML, as Markdown and for a terminal: ours beside the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from math import isfinite, prod
from typing import Literal

from lsm_core.reporting.comparison import (
    Names,
    OverSeeds,
    Places,
    Row,
    difference,
    mean_rank,
    places_within,
    ranks,
    row_name,
)
from lsm_core.result import Failure, Outcome, Result

Mark = Literal["best", "second"]
COSTS = ("parameters", "updates", "samples seen", "TFLOP", "s/epoch", "MiB")
"""What a row took: floating-point operations are those of the whole training."""
MARKS: dict[int, Mark] = {1: "best", 2: "second"}


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells; the first columns are names, the others figures."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_names: int = 1
    marks: Mapping[tuple[int, int], Mark] = field(default_factory=dict)
    """Cells that stand out, by row and column."""
    caption: str = ""
    sortable: bool = False
    """Whether a click on a heading of the page sorts the rows by that column."""
    words: tuple[str, ...] = ()
    """Headings of columns that hold words, not figures: on a page they wrap."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ValueError(f"a row has {len(row)} cells for {len(self.headings)} headings")

    def markdown(self) -> str:
        """Return the table with bold and italic marks, and its caption below."""
        rule = ["---" if column < self.n_names else "---:" for column in range(len(self.headings))]
        signs = {"best": "**", "second": "*"}

        def cell(row: int, column: int, text: str) -> str:
            sign = signs.get(self.marks.get((row, column), ""), "")
            return f"{sign}{text}{sign}"

        lines = [self.headings, rule]
        lines += [
            [cell(i, j, text) for j, text in enumerate(row)] for i, row in enumerate(self.rows)
        ]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"{table}\n\n{self.caption}" if self.caption else table

    def html(self) -> str:
        """Return the table in a box of its own, in which it scrolls where it is too wide."""
        heading = "".join(
            f'<th scope="col"{self._kind(j)}>{self._heading(text)}</th>'
            for j, text in enumerate(self.headings)
        )
        rows = "".join(
            f"<tr>{''.join(self._cell(i, j, text) for j, text in enumerate(row))}</tr>\n"
            for i, row in enumerate(self.rows)
        )
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        kind = ' class="sortable"' if self.sortable else ""
        return (
            f'<figure class="table"><div class="wide" tabindex="0"><table{kind}><thead>'
            f"<tr>{heading}</tr></thead>\n<tbody>{rows}</tbody></table></div>{caption}</figure>"
        )

    def text(self) -> str:
        """Return the table for a terminal, names to the left and figures to the right.

        Words come last, where their length disturbs nothing.
        """
        widths = [max(map(len, column)) for column in zip(self.headings, *self.rows, strict=True)]
        is_words = [heading in self.words for heading in self.headings]
        order = sorted(range(len(widths)), key=is_words.__getitem__)

        def line(cells: Sequence[str]) -> str:
            aligned = [
                cells[column].ljust(widths[column])
                if column < self.n_names or is_words[column]
                else cells[column].rjust(widths[column])
                for column in order
            ]
            return "  ".join(aligned).rstrip()

        rule = "  ".join("─" * widths[column] for column in order)
        lines = [line(self.headings), rule, *map(line, self.rows)]
        return "\n".join([*lines, self.caption] if self.caption else lines)

    def _heading(self, text: str) -> str:
        # A button, so that it is reached by keys as well.
        return f'<button type="button">{escape(text)}</button>' if self.sortable else escape(text)

    def _kind(self, column: int) -> str:
        if self.headings[column] in self.words:
            return ' class="words"'
        return ' class="name"' if column < self.n_names else ""

    def _cell(self, row: int, column: int, text: str) -> str:
        tag = {"best": "strong", "second": "em"}.get(self.marks.get((row, column), ""))
        shown = f"<{tag}>{escape(text)}</{tag}>" if tag else escape(text)
        return f"<td{self._kind(column)}>{shown}</td>"


def table_of(
    lines: Sequence[Mapping[str, str]],
    caption: str = "",
    n_names: int = 1,
    marks: Mapping[tuple[int, int], Mark] | None = None,
    sortable: bool = False,
    words: tuple[str, ...] = (),
) -> Table:
    """Return a table of lines that say the heading of each of their cells; all have the same."""
    return Table(
        headings=tuple(lines[0]) if lines else (),
        rows=tuple(tuple(line.values()) for line in lines),
        n_names=n_names,
        marks=marks or {},
        caption=caption,
        sortable=sortable,
        words=words,
    )


def shown(figure: float | int | None, style: str = ".4g") -> str:
    """Return a figure, or a dash where there is none."""
    return "–" if figure is None or not isfinite(figure) else f"{figure:{style}}"


def shown_rank(places: Places, model: str) -> str:
    """Return the mean place of a model as text."""
    return shown(mean_rank(places, model), ".1f")


def leaderboard_table(rows: Sequence[Row], with_published: bool = False) -> Table:
    """Return a table with a line a model and a column a benchmark, as the paper's main one.

    Models are in the order of their mean rank over the benchmarks that they were run on. The
    published figures stand in brackets, with the ranks that they give to the models here.
    """
    places = ranks(rows)
    published = places_within({(row.benchmark, row.model): row.published for row in rows})
    found = {(row.benchmark, row.model): row for row in rows}
    benchmarks = list(dict.fromkeys(row.benchmark for row in rows))
    models = dict.fromkeys(row.model for row in rows)
    ordered = sorted(models, key=lambda model: mean_rank(places, model))

    def text(benchmark: str, model: str) -> str:
        row = found.get((benchmark, model))
        if row is None:
            return ""
        error = f"{row.errors.mean:.4f}" if row.errors.values else "failed"
        return f"{error} ({shown(row.published)})" if with_published else error

    lines = []
    for model in ordered:
        line = {"model": model, **{name: text(name, model) for name in benchmarks}}
        line["mean rank"] = shown_rank(places, model)
        if with_published:
            line["in the paper"] = shown_rank(published, model)
        lines.append(line)
    caption = (
        "Mean relative L2 error over the test samples, the published figure in brackets; best "
        "bold, second best in italics. Ranks in the paper are among the models that stand here."
    )
    marks = {
        (i, j): MARKS[places[benchmark, model]]
        for i, model in enumerate(ordered)
        for j, benchmark in enumerate(benchmarks, start=1)
        if places.get((benchmark, model)) in MARKS
    }
    return table_of(lines, caption if with_published else "", marks=marks)


def compared_table(
    pairs: Mapping[Names, tuple[OverSeeds, float | None]], headings: Names, caption: str
) -> Table:
    """Return errors by two names, with the paper's, the difference and both ranks.

    Ranks are among the rows with the same first name; the paper's are among the models here.
    """
    ours = places_within({key: errors.mean for key, (errors, _) in pairs.items()})
    theirs = places_within({key: published for key, (_, published) in pairs.items()})
    lines = [
        {
            **dict(zip(headings, key, strict=True)),
            "rank": str(ours.get(key, "–")),
            **beside_paper(*pair),
            "rank, paper": str(theirs.get(key, "–")),
        }
        for key, pair in pairs.items()
    ]
    marks: dict[tuple[int, int], Mark] = {
        (i, 3): "best" for i, key in enumerate(pairs) if ours.get(key) == 1
    }
    return table_of(lines, caption, n_names=2, marks=marks)


def beside_paper(errors: OverSeeds, published: float | None) -> dict[str, str]:
    """Return the cells of errors, the published one and how far the mean is above it.

    A difference says something only where data and length of the training are the paper's.
    """
    compared = difference(errors.mean, published if errors.as_published else None)
    return {"error": errors.text(), "paper": shown(published), "difference": compared}


def comparison_table(rows: Sequence[Row]) -> Table:
    """Return every model on every benchmark: errors beside the paper's, ranks and costs."""
    beaten = {row.problem: row.mean_prediction for row in rows if row.errors.values}
    least = ", ".join(f"{name} {error:.3f}" for name, error in beaten.items())
    caption = (
        "Error: mean relative L2 norm over the test samples, with the standard deviation over the "
        "seeds; difference: how far it is above the published figure, where data and length of the "
        "training are those of the paper."
    )
    if least:
        caption += f" Always predicting the mean of the training targets gives: {least}."
    errors = compared_table(
        {(row.problem, row.model): (row.errors, row.published) for row in rows},
        ("benchmark", "model"),
        caption,
    )
    return replace(
        errors,
        headings=(*errors.headings, *COSTS),
        rows=tuple((*line, *_costs(row)) for line, row in zip(errors.rows, rows, strict=True)),
    )


def target_table(results: Sequence[Result]) -> Table | None:
    """Return the error of every target by itself, where a problem has several; None otherwise.

    A number of the whole sample stands beside fields.
    """
    data = results[0].settings.get("data", {}) if results else {}
    arrays = data.get("parameters", {}).get("arrays", []) if "given" in data else []
    targets = [each for each in arrays if each["role"] == "target"]
    if len(targets) < 2:
        return None
    space = set(data["parameters"]["space"])
    channels = [
        prod(n for dim, n in zip(v["dims"], v["shape"], strict=True) if dim not in space)
        for v in targets
    ]
    firsts = [sum(channels[:n]) + 1 for n in range(len(channels))]

    def error(result: Result, first: int, n: int) -> str:
        own = [result.test.get(f"rel_l2_channel_{k}") for k in range(first, first + n)]
        known = [each for each in own if each is not None]
        return f"{sum(known) / len(known):.4f}" if known else "–"

    return Table(
        headings=("model", "seed", *(v["name"] for v in targets)),
        rows=tuple(
            (
                row_name(result),
                str(result.seed),
                *(error(result, f, n) for f, n in zip(firsts, channels, strict=True)),
            )
            for result in results
        ),
        n_names=2,
        caption="Relative error of each target by itself, over the test samples.",
    )


def provenance_table(outcomes: Sequence[Outcome]) -> Table:
    """Return what every run rests on: all that a reader needs to make it again."""
    return table_of([_what_it_rests_on(outcome) for outcome in outcomes], n_names=2)


def _what_it_rests_on(outcome: Outcome) -> dict[str, str]:
    line = {
        "benchmark": outcome.benchmark,
        "model": row_name(outcome),
        "seed": str(outcome.seed),
        **dict.fromkeys(("samples", "epochs", "updates", "samples seen", "TFLOP"), "–"),
        "run": outcome.identity,
        "protocol": outcome.protocol,
        **dict.fromkeys(("data", "code", "on"), "–"),
    }
    if isinstance(outcome, Failure):
        return line | {"finished": f"failed: {outcome.error}"}
    assert isinstance(outcome, Result)
    environment = {"device": "", "machine": "", "torch": "", **outcome.environment}
    return line | {
        "samples": str(outcome.n_train),
        "epochs": str(outcome.epochs),
        **dict(
            zip(
                COSTS[1:4],
                trained(outcome.updates, outcome.samples_seen, outcome.flops),
                strict=True,
            )
        ),
        "data": f"{outcome.origin} {outcome.dataset.digest[:16]}",
        "code": outcome.code,
        "on": "{device}, {machine}, torch {torch}".format(**environment),
        "finished": outcome.finished,
    }


def trained(updates: int | None, samples_seen: int | None, flops: float | None) -> tuple[str, ...]:
    """Return the cells of how much a run was trained; dashes for runs that do not say."""
    tera = None if flops is None else flops / 1e12
    return shown(updates, ",d"), shown(samples_seen, ",d"), shown(tera, ",.3g")


def _costs(row: Row) -> tuple[str, ...]:
    if not row.errors.values:
        return ("–",) * len(COSTS)
    memory = f"{row.peak_bytes / 2**20:,.0f}"
    training = trained(row.updates, row.samples_seen, row.flops)
    return f"{row.n_parameters:,}", *training, f"{row.seconds_per_epoch:.2f}", memory
