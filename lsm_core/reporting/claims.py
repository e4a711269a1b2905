"""Errors that others claim, each with where it stands and since when."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lsm_core.reporting.published_results import published_error


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claimed error of a model on a benchmark."""

    model: str
    benchmark: str
    error: float
    title: str
    """Where it stands."""
    date: str
    note: str = ""
    """What it rests on, where that is known."""
    approximate: bool = False
    """Whether it was read from a chart."""

    def text(self) -> str:
        """Return the figure with its year."""
        return f"{'~' if self.approximate else ''}{self.error:.4g} ({self.date})"


@cache
def _document() -> dict[str, Any]:
    text = (files("lsm_core.reporting") / "claimed_results.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


@cache
def later_claims() -> tuple[Claim, ...]:
    """Return every claim beside those of the LSM paper's tables, authors' own figures first."""
    sources = _document()["sources"]
    return tuple(
        Claim(**{k: v for k, v in claim.items() if k != "source"}, **sources[claim["source"]])
        for claim in _document()["claims"]
    )


def claims_of(benchmark: str, model: str, resolution: tuple[int, ...]) -> list[Claim]:
    """Return what is claimed of a model on a benchmark, the LSM paper's or its authors' first."""
    own = published_error(benchmark, model, resolution)
    first = {"model": model, "benchmark": benchmark, "error": own, **_document()["sources"]["lsm"]}
    known = [] if own is None else [Claim(**first)]
    return known + [c for c in later_claims() if (c.benchmark, c.model) == (benchmark, model)]
