"""The outcomes of runs in a store, as reports need them: the newest of each, by suite."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, get_args

from flows.steps.results import stored_result
from lsm_core.experiments.presets import experiment
from lsm_core.names import PresetName
from lsm_core.reporting.board import SOLVER
from lsm_core.reporting.comparison import finished, row_name, start_and_data
from lsm_core.reporting.efficiency import Cost
from lsm_core.result import ALONE as MADE_ALONE
from lsm_core.result import Failure, Outcome, Result, earlier_study, marked
from storage.location import Location

BENCHMARK, ALONE = "benchmark", "train"
"""The study that is the main table, and that of runs made one by one."""


class Comparison(NamedTuple):
    """What runs have in common that may stand in one table: a preset and a kind of data."""

    preset: PresetName
    origin: str = "generated"

    def __str__(self) -> str:
        return (
            f"{self.preset}, own data"
            if self.origin == "given"
            else marked(self.preset, self.origin)
        )


@dataclass(frozen=True)
class Outcomes:
    """What came of the runs of a store: each the newest of its kind, once in every suite."""

    results: tuple[Result, ...]
    failures: tuple[Failure, ...]
    """Those that were not finished since."""

    def comparisons(self) -> list[Comparison]:
        """Return the presets and kinds of data that there are, small presets first, ours first."""
        presets = get_args(PresetName)
        every = (*self.results, *self.failures)
        found = {_comparison(outcome) for outcome in every if outcome.preset in presets}
        return sorted(found, key=lambda c: (c.origin != "generated", presets.index(c.preset), c))

    def of_benchmark(self, comparison: Comparison) -> list[Outcome]:
        """Return the outcome of every benchmark, model and seed at a preset, on a kind of data.

        Runs of studies are not among them, nor those made alone with other settings than the
        preset's, other starts or parts of the data. Of runs that were made alone, those that a
        benchmark has too are left out. Solvers are no models.
        """
        found = [
            result
            for result in self.results
            if _comparison(result) == comparison
            and not _has_own_ways(result)
            and result.model != SOLVER
        ]
        failed = [
            failure
            for failure in self.failures
            if failure.study == BENCHMARK and _comparison(failure) == comparison
        ]
        last_counts = sorted(found, key=lambda r: (r.study == BENCHMARK, r.finished))
        chosen: dict[tuple[str, str, int], Outcome] = {
            (outcome.benchmark, outcome.model, outcome.seed): outcome
            for outcome in (*failed, *last_counts)
        }
        return [chosen[key] for key in sorted(chosen)]

    def of_board(self, comparison: Comparison) -> list[Result]:
        """Return the runs of the main table, and the solver of every task that has one."""
        solvers = [
            result
            for result in self.results
            if _comparison(result) == comparison and result.model == SOLVER
        ]
        return [*finished(self.of_benchmark(comparison)), *solvers]

    def of_studies(self, comparison: Comparison) -> dict[str, list[Outcome]]:
        """Return the outcomes of every study at a preset, on a kind of data, by its name.

        A study of which nothing is finished is left out. Runs made alone that have no place in the
        main table are one, each called by what it has otherwise.
        """
        studies: dict[str, list[Outcome]] = {}
        for outcome in (*self.results, *self.failures):
            if _comparison(outcome) != comparison or outcome.study in (BENCHMARK, "retrain"):
                continue
            if outcome.study != ALONE:
                studies.setdefault(outcome.study, []).append(outcome)
            elif _has_own_ways(outcome):
                named = replace(outcome, setting=row_name(outcome))
                studies.setdefault(ALONE, []).append(named)
        return {
            name: _without_sources(some)
            for name, some in studies.items()
            if any(isinstance(outcome, Result) for outcome in some)
        }


def read_outcomes(root: Location) -> Outcomes:
    """Read the newest result of every run and the failures that nothing has mended since."""
    newest: dict[tuple[str, ...], Result] = {}
    for result in _results_by_suite(root):
        # The identity of a source changes with its code; a study's setting says which one is meant.
        is_named = result.setting and result.study != ALONE
        key = (*_what_it_is(result), "" if is_named else str(result.source))
        if key not in newest or newest[key].finished < result.finished:
            newest[key] = result
    results = tuple(newest[key] for key in sorted(newest))
    done = {_what_it_is(result) for result in results}
    failures = {_what_it_is(failure): failure for failure in _failures(root)}
    left = tuple(failures[key] for key in sorted(failures) if key not in done)
    return Outcomes(results, left)


def keep_outcomes(root: Location, outcomes: Iterable[Outcome]) -> None:
    """Note which runs their suites have and what each is called there, and keep what failed.

    A run that several cells share is trained once and knows only the first of them. Failures are
    kept so that every later report names them until the run is finished. Runs that were made one by
    one are no suite.
    """
    notes: dict[Location, dict[str, Any]] = {}
    for outcome in outcomes:
        if outcome.study in MADE_ALONE:
            continue
        place = root / "suites" / outcome.suite / f"{outcome.identity}.json"
        note = notes.setdefault(place, {"study": outcome.study, "settings": []})
        if outcome.setting not in note["settings"]:
            note["settings"].append(outcome.setting)
        if isinstance(outcome, Failure):
            name = f"{outcome.identity}-{_digest(outcome.setting)}.json"
            plain = json.dumps(outcome.to_plain())
            (root / "failures" / outcome.suite / name).write_bytes(plain.encode())
    for place, note in notes.items():
        place.write_bytes(json.dumps(note).encode())


def own_settings(result: Result) -> str:
    """Return in what a run differs from its preset, like `epochs 300, selection best_test`.

    Empty if in nothing. What the preset did not know when the run was made is as it was then. A
    source and a part of the data are said with the rest, but not alone: they are no settings of a
    preset.
    """
    try:
        whole = experiment(result.preset, result.benchmark, result.model, result.seed)  # type: ignore[arg-type]
    except (KeyError, ValueError):
        return ""  # made by a preset or a model that is not here any more
    changes = [
        f"{name} {own[name]}"
        for part, preset in (("training", asdict(whole.training)), ("model", asdict(whole.model)))
        for own in (result.settings.get(part, {}),)
        for name, value in json.loads(json.dumps(preset)).items()
        if name in own and name != "fraction" and own[name] != value
    ]
    return ", ".join(part for part in (start_and_data(result), *changes) if part) if changes else ""


def keep_cost(root: Location, cost: Cost) -> None:
    """Keep what a model costs; a figure measured again on the same machine replaces the old one."""
    name = f"{cost.model}-{cost.form}-{cost.device}-{cost.size}"
    if cost.machine:
        name += f"-{_digest(cost.machine)}"
    (root / "costs" / f"{name}.json").write_bytes(json.dumps(cost.to_plain()).encode())


def stored_costs(root: Location) -> list[Cost]:
    """Return what models cost, by machine, model and size."""
    folder = root / "costs"
    costs = [Cost.from_plain(json.loads((folder / name).read_bytes())) for name in folder.names()]
    return sorted(costs, key=lambda c: (c.device, c.machine, c.model, c.form, c.size))


def _results_by_suite(root: Location) -> Iterator[Result]:
    """Yield every result under each name that it has in each suite."""
    suites = root / "suites"
    noted = {suite: set((suites / suite).names()) for suite in suites.names()}
    for identity in (root / "checkpoints").names():
        result = stored_result(root, identity)
        if result is None:
            continue
        note = f"{identity}.json"
        own = [suite for suite, notes in noted.items() if note in notes]
        for suite in own:
            content = json.loads((suites / suite / note).read_bytes())
            if isinstance(content, list):  # as notes were before studies had a field of their own
                study = earlier_study(suite, result.preset)
                content = {"study": study, "settings": content}
            for setting in content["settings"]:
                yield replace(result, study=content["study"], setting=setting)
        if result.study == ALONE:
            yield replace(result, setting=result.setting or own_settings(result))
        elif result.suite not in own:
            yield result


def _failures(root: Location) -> Iterator[Failure]:
    for suite in (root / "failures").names():
        folder = root / "failures" / suite
        for name in folder.names():
            yield Failure.from_plain(json.loads((folder / name).read_bytes()))


def _what_it_is(outcome: Outcome) -> tuple[str, ...]:
    """Return in what two runs agree that are one run, made again."""
    setting = outcome.setting
    if isinstance(outcome, Result) and outcome.model == SOLVER:
        setting = outcome.protocol  # its task: there is one for each
    run = (outcome.suite, outcome.benchmark, outcome.resolution, outcome.model, setting)
    return tuple(map(str, (*run, outcome.preset, outcome.seed, outcome.fraction, outcome.origin)))


def _comparison(outcome: Outcome) -> Comparison:
    return Comparison(outcome.preset, outcome.origin)


def _has_own_ways(outcome: Outcome) -> bool:
    """Return whether a run is other than its preset's: by a setting, its start or its data."""
    return bool(outcome.setting or outcome.source) or outcome.fraction != 1.0


def _without_sources(outcomes: list[Outcome]) -> list[Outcome]:
    """Return outcomes without the runs that were trained only for others to start from."""
    sources = {outcome.source for outcome in outcomes}
    return [o for o in outcomes if o.setting or o.identity not in sources]


def _digest(text: str) -> str:
    """Return a short name for what has signs that no file should have."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]
