"""Tables of text, as HTML and as Markdown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Literal

Mark = Literal["best", "second"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells; the first columns are names, the others figures."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_names: int = 1
    marks: Mapping[tuple[int, int], Mark] = field(default_factory=dict)
    """Cells that stand out, by row and column."""
    caption: str = ""

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
            f'<th scope="col"{self._kind(j)}>{escape(text)}</th>'
            for j, text in enumerate(self.headings)
        )
        rows = "".join(
            f"<tr>{''.join(self._cell(i, j, text) for j, text in enumerate(row))}</tr>\n"
            for i, row in enumerate(self.rows)
        )
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return (
            f'<figure class="table"><div class="wide" tabindex="0"><table><thead><tr>{heading}'
            f"</tr></thead>\n<tbody>{rows}</tbody></table></div>{caption}</figure>"
        )

    def _kind(self, column: int) -> str:
        return ' class="name"' if column < self.n_names else ""

    def _cell(self, row: int, column: int, text: str) -> str:
        tag = {"best": "strong", "second": "em"}.get(self.marks.get((row, column), ""))
        shown = f"<{tag}>{escape(text)}</{tag}>" if tag else escape(text)
        return f"<td{self._kind(column)}>{shown}</td>"
