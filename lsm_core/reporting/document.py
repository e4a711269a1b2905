"""A page that needs nothing but itself: table, figures and how the numbers came to be."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from lsm_core.reporting.comparison import HEADINGS, Row

STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --quiet: #5b6570; --line: #d5dae0;
  --page: #ffffff; --best: #eef6ee; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --quiet: #9aa4af; --line: #363c44;
  --page: #14171b; --best: #1d2b20; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
p.quiet, figcaption, footer { color: var(--quiet); font-size: 0.9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 0.7rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; }
th:nth-child(n+3), td:nth-child(n+3) { text-align: right; }
tr.best { background: var(--best); }
figure { margin: 1.2rem 0; }
/* Figures are drawn for a white ground, in the dark too. */
figure .ground { background: #ffffff; border: 1px solid var(--line); border-radius: 6px;
  padding: 0.5rem; overflow-x: auto; }
figure svg { width: 100%; min-width: 32rem; height: auto; display: block; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; margin: 0; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True)
class Picture:
    """A figure and what it shows."""

    svg: str
    caption: str


def html_page(
    title: str,
    summary: str,
    rows: Sequence[Row],
    pictures: Sequence[Picture],
    facts: Sequence[tuple[str, str]],
) -> str:
    """Return one self-contained page, light and dark, readable on a phone."""
    entries = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    return _page(
        title,
        f"""<p class="quiet">{escape(summary)}</p>
<div class="wide">{html_table(rows)}</div>
{_figures(pictures)}
<h2>How these numbers came to be</h2>
<dl>{entries}</dl>""",
    )


def gallery_page(title: str, pictures: Sequence[Picture]) -> str:
    """Return a self-contained page of pictures."""
    return _page(title, _figures(pictures))


def _figures(pictures: Sequence[Picture]) -> str:
    return "\n".join(
        f'<figure><div class="ground">{picture.svg}</div>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
        for picture in pictures
    )


def _page(title: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{escape(title)}</h1>
{body}
</body></html>
"""


def html_table(rows: Sequence[Row]) -> str:
    """Return the rows as a table, the best of every benchmark marked."""
    heading = "".join(f"<th>{escape(text)}</th>" for text in HEADINGS)
    seen: set[tuple[str, tuple[int, ...]]] = set()
    body = []
    for row in rows:
        first = (row.benchmark, row.resolution) not in seen and bool(row.errors)
        seen.add((row.benchmark, row.resolution))
        cells = "".join(f"<td>{escape(text)}</td>" for text in row.cells())
        body.append(f'<tr class="best">{cells}</tr>' if first else f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{''.join(body)}</tbody></table>"
