"""A page that needs nothing but itself, light and dark, and the same as Markdown."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil
from typing import TypeAlias

from lsm_core.reporting.figures import COLOURS, GROUND, INK, QUIET
from lsm_core.reporting.tables import Table

DARK_COLOURS = (
    *("#4fa8e0", "#f08a4b", "#35c596", "#e39bc4", "#e9b44c", "#9bd3f5"),
    "#b49ae6",
)
"""In the dark the colours of lines are lighter, in the same order."""
EXCHANGED = {
    INK: "ink",
    QUIET: "quiet",
    GROUND: "ground",
    **{colour: f"series-{number}" for number, colour in enumerate(COLOURS, start=1)},
}
"""Colours of figures that the page sets, by the names of its variables."""


def _variables(values: Sequence[str]) -> str:
    return " ".join(f"--series-{n}: {value};" for n, value in enumerate(values, start=1))


STYLE = f"""
:root {{ color-scheme: light dark; --ink: {INK}; --quiet: {QUIET}; --line: #d5dae0;
  --page: #ffffff; --ground: {GROUND}; --soft: #f3f5f7; {_variables(COLOURS)} }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6e9ed; --quiet: #a3adb8; --line: #363c44;
  --page: #14171b; --ground: #191d22; --soft: #20252b; {_variables(DARK_COLOURS)} }} }}
* {{ box-sizing: border-box; }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 77rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }}
h1 {{ font-size: 1.6rem; margin-bottom: 0.2rem; }}
h2 {{ font-size: 1.25rem; margin-top: 2.6rem; border-top: 1px solid var(--line);
  padding-top: 1.2rem; }}
p {{ max-width: 46rem; }}
p.quiet, figcaption {{ color: var(--quiet); font-size: 0.9rem; }}
figcaption {{ margin-top: 0.4rem; max-width: 46rem; }}
code {{ background: var(--soft); padding: 0.1em 0.35em; border-radius: 4px; font-size: 0.9em;
  display: inline-block; max-width: 100%; }}
a {{ color: var(--series-1); }}
nav ul {{ padding: 0; display: flex; flex-wrap: wrap; gap: 0.2rem 1.2rem; list-style: none; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.875rem; }}
th, td {{ padding: 0.3rem 0.55rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }}
th.name, td.name {{ text-align: left; }}
th.words, td.words {{ text-align: left; white-space: normal; min-width: 13rem; }}
table.sortable :is(th, td):nth-child(2) {{ position: sticky; left: 0; z-index: 1;
  background: var(--page); }}
@media (max-width: 90rem) {{ table {{ font-size: 0.78rem; }}
  th, td {{ padding: 0.3rem 0.28rem; }} }}
@media (max-width: 50rem) {{ th, td {{ padding: 0.25rem 0.3rem; }}
  td.name, td:last-child {{ white-space: normal; }} td.name {{ min-width: 7rem; }} }}
th {{ color: var(--quiet); font-weight: 600; }}
figure {{ margin: 1.4rem 0; }}
figure .ground {{ background: var(--ground); border: 1px solid var(--line); border-radius: 6px;
  padding: 0.5rem; overflow-x: auto; }}
figure svg {{ display: block; margin: 0 auto; width: 100%; height: auto; }}
figure svg text {{ font-family: system-ui, sans-serif; }}
th button {{ font: inherit; color: inherit; background: none; border: 0; padding: 0;
  cursor: pointer; }}
th button::after {{ content: "\\2195"; opacity: 0.4; margin-left: 0.3em; }}
th[aria-sort=ascending] button::after {{ content: "\\2191"; opacity: 1; }}
th[aria-sort=descending] button::after {{ content: "\\2193"; opacity: 1; }}
details {{ margin: 1rem 0; }} summary {{ cursor: pointer; }}
"""


SORTING = """
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const key = (row, column) => {
    const text = row.cells[column].textContent.replace(/,/g, "").replace(/^~/, "");
    const number = parseFloat(text);
    return Number.isNaN(number) ? text : number;
  };
  const less = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0)
    : typeof a === "number" ? -1 : 1;
  headings.forEach((heading, column) => heading.firstElementChild.addEventListener("click", () => {
    const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    headings.forEach(other => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    body.append(...[...body.rows].sort((a, b) => sign * less(key(a, column), key(b, column))));
  }));
}
"""
"""Sorts tables that are sortable; a page without scripts shows them in their first order."""


@dataclass(frozen=True)
class Picture:
    """A figure and what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Folded:
    """A table that is folded away until someone asks."""

    summary: str
    table: Table

    def html(self) -> str:
        """Return the table below its summary, which opens it."""
        summary = f"<summary>{escape(self.summary)}</summary>"
        return f"<details>{summary}{self.table.html()}</details>"

    def markdown(self) -> str:
        """Return the same for a page of Markdown, which takes HTML around a table."""
        head = f"<details><summary>{escape(self.summary)}</summary>"
        return f"{head}\n\n{self.table.markdown()}\n\n</details>"


Block: TypeAlias = str | Table | Picture | Folded
"""A paragraph, in which backquotes mark a command, or one of the others."""


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it, in order."""

    title: str
    blocks: tuple[Block, ...]


def html_page(title: str, summary: str, sections: Sequence[Section]) -> str:
    """Return one self-contained page, light and dark, readable on a phone."""
    anchors = [re.sub(r"[^a-z0-9]+", "-", section.title.lower()) for section in sections]
    links = "".join(
        f'<li><a href="#{anchor}">{escape(section.title)}</a></li>'
        for anchor, section in zip(anchors, sections, strict=True)
    )
    parts, n_figures = [], 0
    for anchor, section in zip(anchors, sections, strict=True):
        parts.append(f'<section id="{anchor}"><h2>{escape(section.title)}</h2>')
        for block in section.blocks:
            n_figures += isinstance(block, Picture)
            parts.append(_html(block, n_figures))
        parts.append("</section>")
    body = "\n".join(parts)
    script = f"<script>{SORTING}</script>\n" if 'class="sortable"' in body else ""
    lead = f'<p class="quiet">{_with_commands(summary)}</p>\n' if summary else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{escape(title)}</h1>
{lead}<nav><ul>{links}</ul></nav>
{body}
{script}</body></html>
"""


def markdown_page(
    title: str, summary: str, sections: Sequence[Section], places: Sequence[str] = ()
) -> str:
    """Return the page as Markdown; `places` are where its pictures lie, none to leave them out."""
    parts = [f"# {title}", summary]
    left = iter(places)
    for section in sections:
        blocks: list[str] = []
        for block in section.blocks:
            if isinstance(block, Picture):
                place = next(left, None)
                blocks += [f"![{block.caption}]({place})", block.caption] if place else []
            else:
                blocks.append(block if isinstance(block, str) else block.markdown())
        if blocks:
            parts += [f"## {section.title}", *blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def _html(block: Block, number: int) -> str:
    if isinstance(block, str):
        return f"<p>{_with_commands(block)}</p>"
    if not isinstance(block, Picture):
        return block.html()
    return (
        f'<figure id="figure-{number}"><div class="ground" tabindex="0">'
        f"{_inline(block.svg, number)}</div>"
        f"<figcaption>Figure {number}. {escape(block.caption)}</figcaption></figure>"
    )


def _inline(svg: str, number: int) -> str:
    """Return a figure as a part of the page: its colours the page's, its ids its own.

    A figure that is wider than a screen keeps letters that can be read, and scrolls in its box.
    """
    head, rest = svg.split(">", 1)
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', head).group(1))  # type: ignore[union-attr]
    size = f"min-width: {ceil(0.9 * width)}px; max-width: {ceil(1.5 * width)}px"
    head = re.sub(r' (?:width|height)="[^"]*"', "", head) + f' role="img" style="{size}"'
    known = "|".join(EXCHANGED)
    rest = re.sub(rf"(?<=: )({known})\b", lambda found: f"var(--{EXCHANGED[found[0]]})", rest)
    rest = re.sub(r'(?<= id=")', f"f{number}-", rest)
    rest = re.sub(r'(?<=url\(#)|(?<=href="#)', f"f{number}-", rest)
    # Metadata and comments tell a reader nothing and name pages that nobody need load.
    rest = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", rest, flags=re.DOTALL)
    return f"{head}>{rest}"


def _with_commands(text: str) -> str:
    """Return a paragraph as HTML, what stands between backquotes as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
