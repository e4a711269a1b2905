"""The results of finished runs in a store."""

from collections.abc import Iterator
from typing import Any

from storage.checkpoints import Checkpoints
from storage.location import Location

WHAT_A_RUN_IS = (
    "suite",
    "benchmark",
    "resolution",
    "model",
    "setting",
    "preset",
    "seed",
    "source",
    "fraction",
)
"""Runs that agree in all of these are one run, made again with other sources or data."""


def newest_results(root: Location) -> list[dict[str, Any]]:
    """Return the newest result of every run."""
    newest: dict[tuple[str, ...], dict[str, Any]] = {}
    for result in _results(root):
        key = tuple(str(result.get(name)) for name in WHAT_A_RUN_IS)
        if key not in newest or newest[key]["finished"] < result["finished"]:
            newest[key] = result
    return [newest[key] for key in sorted(newest)]


def benchmark_results(root: Location, preset: str) -> list[dict[str, Any]]:
    """Return the newest result of every benchmark, model and seed at a preset.

    Runs of studies are not among them: other settings, other starts, parts of the data.
    """
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for result in newest_results(root):
        if result["preset"] != preset or _belongs_to_a_study(result):
            continue
        key = (result["benchmark"], result["model"], result["seed"])
        if key not in newest or newest[key]["finished"] < result["finished"]:
            newest[key] = result
    return [newest[key] for key in sorted(newest)]


def _belongs_to_a_study(result: dict[str, Any]) -> bool:
    is_whole = result.get("fraction", 1.0) == 1.0
    return bool(result.get("setting") or result.get("source")) or not is_whole


def _results(root: Location) -> Iterator[dict[str, Any]]:
    runs = root / "checkpoints"
    for identity in runs.names():
        result = Checkpoints(runs / identity).result()
        if result is not None:
            yield result
