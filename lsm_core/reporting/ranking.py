"""Ours beside the paper's: places among several figures, and tables that show both."""

from collections.abc import Hashable, Mapping
from math import isfinite
from typing import TypeVar

from lsm_core.reporting.seeds import OverSeeds, difference
from lsm_core.reporting.table import Mark, Table

Key = TypeVar("Key", bound=Hashable)
Names = tuple[str, str]


def places(figures: Mapping[Key, float | None]) -> dict[Key, int]:
    """Return the place of every finite figure, the smallest first."""
    known = {key: value for key, value in figures.items() if value is not None and isfinite(value)}
    return {key: place for place, key in enumerate(sorted(known, key=lambda k: known[k]), start=1)}


def places_within(figures: Mapping[Names, float | None]) -> dict[Names, int]:
    """Return the place of every figure among those whose first name is the same."""
    found: dict[Names, int] = {}
    for group in dict.fromkeys(first for first, _ in figures):
        found |= places({key: value for key, value in figures.items() if key[0] == group})
    return found


def shown(figure: float | None) -> str:
    """Return a published figure, or a dash where there is none."""
    return "–" if figure is None else f"{figure:.4g}"


def compared_table(
    measured: Mapping[Names, OverSeeds],
    published: Mapping[Names, float | None],
    headings: Names,
    caption: str,
) -> Table:
    """Return errors by two names, with the paper's, the difference and both ranks.

    Ranks are among the rows with the same first name; the paper's are among the models here.
    """
    ours = places_within({key: errors.mean for key, errors in measured.items()})
    theirs = places_within({key: published.get(key) for key in measured})
    lines = []
    marks: dict[tuple[int, int], Mark] = {}
    for number, (key, errors) in enumerate(measured.items()):
        known = published.get(key)
        if ours.get(key) == 1:
            marks[number, 3] = "best"
        lines.append(
            (
                *key,
                str(ours.get(key, "–")),
                errors.text(),
                shown(known),
                difference(errors.mean, known),
                str(theirs.get(key, "–")),
            )
        )
    return Table(
        headings=(*headings, "rank", "error", "paper", "difference", "rank, paper"),
        rows=tuple(lines),
        n_names=2,
        marks=marks,
        caption=caption,
    )
