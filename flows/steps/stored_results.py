"""The results of finished runs in a store."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from flows.steps.own_settings import own_settings
from lsm_core.reporting.comparison import row_name
from lsm_core.reporting.origin import marked, origin_of
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
"""Runs that agree in all of these and in the origin of their data are one run, made again."""

ALONE = "train"
"""The suite of runs that were made one by one."""

Results = list[dict[str, Any]]


class Comparison(NamedTuple):
    """What runs have in common that may stand in one table: a preset and a kind of data."""

    preset: str
    origin: str = "generated"

    def __str__(self) -> str:
        return marked(self.preset, self.origin)

    @property
    def suffix(self) -> str:
        """Return how the suites of such runs end."""
        return suite_name("", self.preset, self.origin != "generated")


def suite_name(name: str, preset: str, official: bool) -> str:
    """Return what the runs of a benchmark or a study are called together."""
    return f"{name}-{preset}{'-official' if official else ''}"


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


def keep_failures(root: Location, suite: str, results: Iterable[dict[str, Any]]) -> None:
    """Keep the records of runs of a suite that failed, so that every later report names them."""
    for result in results:
        if "error" in result:
            name = f"{result['identity']}-{_digest(str(result.get('setting', '')))}.json"
            record = {"setting": "", **result, "suite": suite}
            (root / "failures" / suite / name).write_bytes(json.dumps(record).encode())


def newest_failures(root: Location, finished: Results) -> Results:
    """Return the records of runs that failed, less those that are finished by now."""
    done = {_what_it_is(result) for result in finished}
    failures: dict[tuple[str, ...], dict[str, Any]] = {}
    for suite in (root / "failures").names():
        folder = root / "failures" / suite
        for name in folder.names():
            record = json.loads((folder / name).read_bytes())
            failures[_what_it_is(record)] = record
    return [failures[key] for key in sorted(failures) if key not in done]


def newest_results(root: Location) -> Results:
    """Return the newest result of every run, once for every suite that it belongs to."""
    newest: dict[tuple[str, ...], dict[str, Any]] = {}
    for result in _results_of_suites(root):
        key = _what_it_is(result)
        # The identity of a source changes with its code; a study's setting says which one is meant.
        is_named = result.get("setting") and result.get("suite") != ALONE
        key = (*key, "" if is_named else str(result.get("source")))
        if key not in newest or newest[key]["finished"] < result["finished"]:
            newest[key] = result
    return [newest[key] for key in sorted(newest)]


def benchmark_results(root: Location, preset: str, origin: str = "generated") -> Results:
    """Return the newest result of every benchmark, model and seed at a preset, on a kind of data.

    Runs of studies are not among them, nor those made alone with other settings than the preset's,
    other starts or parts of the data. Of runs that were made alone, those that a benchmark has too
    are left out. Cells of the benchmark that failed and were not finished since have an `error`.
    """
    results, wanted = newest_results(root), Comparison(preset, origin)
    found = [
        result
        for result in results
        if comparison_of(result) == wanted and not _belongs_to_a_study(result)
    ]
    chosen: dict[tuple[Any, ...], dict[str, Any]] = {
        (failure["benchmark"], failure["model"], failure["seed"]): failure
        for failure in newest_failures(root, results)
        if failure["suite"] == f"benchmark{wanted.suffix}" and origin_of(failure) == origin
    }
    for result in sorted(found, key=lambda r: (_is_of_a_benchmark(r), r["finished"])):
        chosen[result["benchmark"], result["model"], result["seed"]] = result
    return [chosen[key] for key in sorted(chosen)]


def study_results(root: Location, preset: str, origin: str = "generated") -> dict[str, Results]:
    """Return the newest results of every study at a preset, on a kind of data, by its name.

    Failures have an `error`. A study of which nothing is finished is left out. Runs made alone that
    have no place in the main table are one, each called by what it has otherwise.
    """
    wanted = Comparison(preset, origin)
    studies: dict[str, Results] = {}
    results = newest_results(root)
    for result in (*results, *newest_failures(root, results)):
        suite = str(result.get("suite"))
        name = suite.removesuffix(wanted.suffix)
        if comparison_of(result) != wanted:
            continue
        if suite == ALONE and _belongs_to_a_study(result):
            studies.setdefault(ALONE, []).append({**result, "setting": row_name(result)})
        elif name not in ("benchmark", "None") and name != suite:
            studies.setdefault(name, []).append(result)
    return {
        name: _without_sources(some)
        for name, some in studies.items()
        if any("error" not in result for result in some)
    }


def _without_sources(results: Results) -> Results:
    """Return results without the runs that were trained only for others to start from."""
    sources = {result.get("source") for result in results}
    return [r for r in results if r.get("setting") or r.get("identity") not in sources]


def comparison_of(result: dict[str, Any]) -> Comparison:
    """Return with what other results a result may be compared."""
    return Comparison(str(result["preset"]), origin_of(result))


def comparisons_of(root: Location) -> list[Comparison]:
    """Return the presets and kinds of data of which there are results."""
    return sorted({comparison_of(result) for result in newest_results(root)})


def keep_costs(root: Location, costs: Iterable[dict[str, Any]]) -> None:
    """Keep what models cost; a figure measured again on the same machine replaces the old one."""
    for cost in costs:
        name = "-".join(str(cost[key]) for key in ("model", "form", "device", "size"))
        if cost.get("machine"):
            name += f"-{_digest(str(cost['machine']))}"
        (root / "costs" / f"{name}.json").write_bytes(json.dumps(cost).encode())


def stored_costs(root: Location) -> Results:
    """Return what models cost, by device, model and size."""
    folder = root / "costs"
    costs = [json.loads((folder / name).read_bytes()) for name in folder.names()]

    def order(cost: dict[str, Any]) -> tuple[Any, ...]:
        where = cost["device"], cost.get("machine", "")
        return *where, cost["model"], cost["form"], cost["size"]

    return sorted(costs, key=order)


def _what_it_is(result: dict[str, Any]) -> tuple[str, ...]:
    return *(str(result.get(name)) for name in WHAT_A_RUN_IS), origin_of(result)


def _digest(text: str) -> str:
    """Return a short name for what has signs that no file should have."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


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
        if result.get("suite") == ALONE:
            yield {**result, "setting": result.get("setting") or own_settings(result)}
        elif result.get("suite") not in own:
            yield result


def _results(root: Location) -> Iterator[tuple[str, dict[str, Any]]]:
    runs = root / "checkpoints"
    for identity in runs.names():
        result = Checkpoints(runs / identity).result()
        if result is not None:
            yield identity, result
