"""The page of results that is kept with the sources: every figure with what it rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lsm_core.reporting.comparison import compare, markdown_table, row_name
from lsm_core.reporting.leaderboard import leaderboard
from lsm_core.reporting.origin import origin_of


@dataclass(frozen=True, kw_only=True)
class Section:
    """Some results that belong together, and what is to be said of them."""

    title: str
    text: str
    results: Sequence[Mapping[str, Any]]
    picture: str = ""
    """Where the picture of their training curves lies, seen from the page."""


def results_page(
    sections: Sequence[Section], machine: str, note: str = "", costs: Sequence[str] = ()
) -> str:
    """Return the page as Markdown; `note` is what else a reader should know of these runs.

    `costs` are tables of what models cost, as Markdown.
    """
    origins = {origin_of(result) for section in sections for result in section.results}
    whose = "Every run is" if origins <= {"generated"} else "Runs whose title names no data are"
    parts = [
        "# Results",
        f"Errors are mean relative L2 norms over the test samples. {whose} on data of our own "
        "solvers, with the sizes named below; the column Paper is the published figure on the "
        "published data and sizes, where the paper has that very row. `lsm report results` "
        "writes this page from the runs in a store. "
        f"Machine: {machine}.",
        *([note] if note else []),
    ]
    for section in sections:
        parts += [f"## {section.title}", section.text, *_tables(section)]
    parts += ["## Cost of models", *costs] if costs else []
    return "\n\n".join(parts) + "\n"


def _tables(section: Section) -> list[str]:
    rows = compare(section.results)
    parts = [markdown_table(rows)]
    if len({row.benchmark for row in rows}) > 1:
        parts.insert(0, leaderboard(rows))
    if section.picture:
        parts.append(f"![Error on validation samples against the epoch]({section.picture})")
    return [*parts, _provenance(section.results)]


def _provenance(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of hashes, sizes and dates."""
    lines = [
        "| benchmark | model | samples | epochs | protocol | data | code | finished |",
        "|---|---|---:|---:|---|---|---|---|",
    ]
    for result in results:
        if "error" in result:
            lines.append(f"| {result['benchmark']} | {row_name(result)} | {result['error']} ||||||")
            continue
        cells = (
            result["benchmark"],
            row_name(result),
            str(result["n_train"]),
            str(result["epochs"]),
            f"`{result['protocol']}`",
            f"`{result['dataset']['digest'][:16]}`",
            f"`{result['code']}`",
            result["finished"],
        )
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines)
    return f"<details><summary>What each run rests on</summary>\n\n{table}\n\n</details>"
