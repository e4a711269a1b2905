"""The results of finished runs in a store."""

import hashlib
import json
from collections.abc import Iterable, Iterator
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
    "fraction",
)
"""Runs that agree in all of these are one run, made again with other sources or data."""

Results = list[dict[str, Any]]


def keep_suite(root: Location, suite: str, cells: Iterable[tuple[str, str]]) -> None:
    """Note which runs, by identity, are a suite, and what each is called there.

    A run that several cells share is trained once and knows only the first of them.
    """
    names: dict[str, set[str]] = {}
    for identity, setting in cells:
        names.setdefault(identity, set()).add(setting)
    for identity, settings in names.items():
        place = root / "suites" / suite / f"{identity}.json"
        place.write_bytes(json.dumps(sorted(settings)).encode())


def newest_results(root: Location) -> Results:
    """Return the newest result of every run, once for every suite that it belongs to."""
    newest: dict[tuple[str, ...], dict[str, Any]] = {}
    for result in _results_of_suites(root):
        key = tuple(str(result.get(name)) for name in WHAT_A_RUN_IS)
        # The identity of a source changes with its code; a setting says which one is meant.
        key = (*key, "" if result.get("setting") else str(result.get("source")))
        if key not in newest or newest[key]["finished"] < result["finished"]:
            newest[key] = result
    return [newest[key] for key in sorted(newest)]


def benchmark_results(root: Location, preset: str) -> Results:
    """Return the newest result of every benchmark, model and seed at a preset.

    Runs of studies are not among them: other settings, other starts, parts of the data. Of runs
    that were made alone, those that a benchmark has too are left out.
    """
    found = [
        result
        for result in newest_results(root)
        if result["preset"] == preset and not _belongs_to_a_study(result)
    ]
    chosen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for result in sorted(found, key=lambda r: (_is_of_a_benchmark(r), r["finished"])):
        chosen[result["benchmark"], result["model"], result["seed"]] = result
    return [chosen[key] for key in sorted(chosen)]


def study_results(root: Location, preset: str) -> dict[str, Results]:
    """Return the newest results of every study at a preset, by its name."""
    studies: dict[str, Results] = {}
    for result in newest_results(root):
        name = str(result.get("suite")).removesuffix(f"-{preset}")
        known = name not in ("benchmark", "train", "None") and name != result.get("suite")
        if result["preset"] == preset and known:
            studies.setdefault(name, []).append(result)
    return {name: _without_sources(some) for name, some in studies.items()}


def _without_sources(results: Results) -> Results:
    """Return results without the runs that were trained only for others to start from."""
    sources = {result.get("source") for result in results}
    return [r for r in results if r.get("setting") or r.get("identity") not in sources]


def presets_of(root: Location) -> list[str]:
    """Return the presets of which there are results."""
    return sorted({str(result["preset"]) for result in newest_results(root)})


def keep_costs(root: Location, costs: Iterable[dict[str, Any]]) -> None:
    """Keep what models cost; a figure measured again on the same machine replaces the old one."""
    for cost in costs:
        name = "-".join(str(cost[key]) for key in ("model", "form", "device", "size"))
        if cost.get("machine"):
            # The names of processors have signs that no file should have.
            name += f"-{hashlib.sha256(str(cost['machine']).encode()).hexdigest()[:8]}"
        (root / "costs" / f"{name}.json").write_bytes(json.dumps(cost).encode())


def stored_costs(root: Location) -> Results:
    """Return what models cost, by device, model and size."""
    folder = root / "costs"
    costs = [json.loads((folder / name).read_bytes()) for name in folder.names()]

    def order(cost: dict[str, Any]) -> tuple[Any, ...]:
        where = cost["device"], cost.get("machine", "")
        return *where, cost["model"], cost["form"], cost["size"]

    return sorted(costs, key=order)


def _belongs_to_a_study(result: dict[str, Any]) -> bool:
    is_whole = result.get("fraction", 1.0) == 1.0
    return bool(result.get("setting") or result.get("source")) or not is_whole


def _is_of_a_benchmark(result: dict[str, Any]) -> bool:
    return str(result.get("suite")).startswith("benchmark-")


def _results_of_suites(root: Location) -> Iterator[dict[str, Any]]:
    """Yield every result under each name that it has in each suite."""
    suites = root / "suites"
    noted = {suite: set((suites / suite).names()) for suite in suites.names()}
    for identity, result in _results(root):
        note = f"{identity}.json"
        own = [suite for suite, notes in noted.items() if note in notes]
        for suite in own:
            for setting in json.loads((suites / suite / note).read_bytes()):
                yield {**result, "suite": suite, "setting": setting}
        if result.get("suite") not in own:
            yield result


def _results(root: Location) -> Iterator[tuple[str, dict[str, Any]]]:
    runs = root / "checkpoints"
    for identity in runs.names():
        result = Checkpoints(runs / identity).result()
        if result is not None:
            yield identity, result
