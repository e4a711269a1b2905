"""Models side by side in MLflow: one run a model and suite, with its mean error on each problem.

    page = comparison_page(root, tracking, "benchmark-quick")    sent, and where it is

Trainings are in an experiment for each problem, whose curves and tables then belong together; no
page of MLflow shows several of them. So means over seeds are sent once more, to the experiment
`comparison`, where every metric is a problem and every run a model.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from mlflow.entities import Metric

from flows.steps.reports.results import BENCHMARK, Outcomes, read_outcomes
from flows.steps.training.run_record import PERCENT, milliseconds
from lsm_core.reporting.comparison import Row, compare, finished, row_name
from lsm_core.result import Outcome, Result, suite_name
from storage.location import Location
from storage.tracking.charts_page import SURROGATE, metric, set_note, suite_tag, view_address
from storage.tracking.echo import RunRecord, Sent, send
from storage.tracking.registry import registered_name
from storage.tracking.store import COMPARISON, Tracking

RANK = "rank/mean over problems"
ERROR, EPOCH_SECONDS = f"{PERCENT}/test", "time/median_seconds_per_epoch"


def comparison_page(root: Location, tracking: Tracking, suite: str = "") -> str:
    """Send what MLflow lacks of a comparison, or of all, and return the address of its page."""
    outcomes = read_outcomes(root)
    records = [each for each in comparison_records(outcomes) if suite in ("", each.tags["suite"])]
    comparison = tracking.at(COMPARISON)
    for record in records:
        send(comparison, record)
    if records:
        write_note(outcomes, comparison)
    problems = _problems(records)
    columns = [metric(name) for name in (*(f"{PERCENT}/{each}" for each in problems), RANK)]
    charts = [
        {
            **{"type": "BAR", "runsCountToCompare": 20, "section": section},
            **{"metricKey": f"{section}/{problem}"},
        }
        for section in (PERCENT, "parameters", "seconds per epoch")
        for problem in problems
    ]
    return view_address(comparison, suite, RANK, columns, charts, with_runs=False)


def curves_page(tracking: Tracking, benchmark: str, suite: str = "") -> str:
    """Return the address of the curves of the models of one problem, the best first."""
    columns = [
        *(metric(name) for name in (ERROR, "model/parameters", EPOCH_SECONDS)),
        *("tags.`preset`", "attributes.`Dataset`", "attributes.`Models`"),
    ]
    bar = {"type": "BAR", "runsCountToCompare": 20}
    # By itself MLflow draws smoothed lines, which lie above errors that fall.
    line = {"type": "LINE", "scaleType": "log", "lineSmoothness": 0}
    charts: list[dict[str, Any]] = [
        {**bar, "section": "errors", "metricKey": ERROR},
        *(
            {**line, "section": "errors", "metricKey": name, "selectedMetricKeys": [name]}
            for name in ("validation/rel_l2", "train/rel_l2", "rollout/test_rel_l2")
        ),
        *(
            {**bar, "section": "cost", "metricKey": name}
            for name in ("model/parameters", EPOCH_SECONDS)
        ),
        {"type": "IMAGE", "section": "a test sample", "imageKeys": ["sample"], "step": 0},
    ]
    experiment = tracking.at(registered_name(benchmark))
    return view_address(experiment, suite, ERROR, columns, charts, with_runs=False)


def sync_comparison(root: Location, tracking: Tracking) -> Iterator[tuple[str, Sent]]:
    """Send what MLflow lacks of all comparisons; yield the name of each run, and what was sent."""
    outcomes, comparison = read_outcomes(root), tracking.at(COMPARISON)
    for record in comparison_records(outcomes):
        yield record.identity, send(comparison, record)
    write_note(outcomes, comparison)


def comparison_records(outcomes: Outcomes) -> Iterator[RunRecord]:
    """Yield a run for each suite and each row of its table: a model, or one of its settings."""
    for suite, some in _suites(outcomes):
        results = finished(some)
        rows = compare(results)
        places = _places(rows)
        for name in dict.fromkeys(row.model for row in rows):
            own = [row for row in rows if row.model == name]
            runs = [result for result in results if row_name(result) == name]
            yield _record(suite, name, own, runs, fmean(places[row.problem, name] for row in own))


def _record(
    suite: str, name: str, rows: Sequence[Row], runs: Sequence[Result], rank: float
) -> RunRecord:
    at = max(milliseconds(run.finished) for run in runs)
    grids = {row.benchmark: sum(row.benchmark == r.benchmark for r in rows) for row in rows}
    figures = {RANK: rank}
    for row in rows:
        grid = "" if grids[row.benchmark] == 1 else f" {'x'.join(map(str, row.resolution))}"
        problem = f"{row.benchmark}{grid}"
        figures[f"{PERCENT}/{problem}"] = 100 * row.errors.mean
        figures[f"parameters/{problem}"] = row.n_parameters
        figures[f"seconds per epoch/{problem}"] = row.seconds_per_epoch
    first = runs[0]
    return RunRecord(
        identity=f"{suite}-{first.origin}-{name}",
        experiment=COMPARISON,
        name=name,
        started=at,
        tags={
            "suite": suite,
            suite_tag(suite): "yes",
            "model": name,
            SURROGATE: name,
            "preset": first.preset,
            "origin": first.origin,
            "seeds": ", ".join(map(str, sorted({run.seed for run in runs}))),
        },
        points=[Metric(key, value, at, 0) for key, value in figures.items()],
        replaces=True,
        status="FINISHED",
        ended=at,
    )


def write_note(outcomes: Outcomes, comparison: Tracking) -> bool:
    """Say in the experiment's description which model is best on which problem."""
    lines = ["Mean test errors over seeds, in percent; each problem links to its curves."]
    told = ""
    for suite, some in _suites(outcomes):
        if not suite.startswith(BENCHMARK):
            continue
        lines += ["", f"**{suite}**", "", "| problem | best | error | then |", "|---|---|---|---|"]
        rows = compare(finished(some))
        wins: dict[str, list[str]] = {}
        for problem in dict.fromkeys(row.problem for row in rows):
            best, *others = [row for row in rows if row.problem == problem]
            page = curves_page(comparison, best.benchmark, suite)
            then = ", ".join(f"{row.model} {100 * row.errors.mean:.2f}" for row in others)
            win = f"{best.benchmark} {100 * best.errors.mean:.2f} %"
            wins.setdefault(best.model, []).append(win)
            lines.append(
                f"| [{problem}]({page}) | **{best.model}** | {100 * best.errors.mean:.2f} % "
                f"| {then} |"
            )
        told = f"{suite}, the best: {_told(wins)}"
    # Of a description that is folded the page shows the first line.
    return set_note(comparison, "\n".join([told, "", *lines]))


def _told(wins: dict[str, list[str]]) -> str:
    """Return where each model is the best, the one that is so most often first."""
    order = sorted(wins.items(), key=lambda each: -len(each[1]))
    return "; ".join(f"**{model}** on {', '.join(problems)}" for model, problems in order)


def _suites(outcomes: Outcomes) -> Iterator[tuple[str, list[Outcome]]]:
    """Yield the suites of which something is finished, with their outcomes."""
    for comparison in outcomes.comparisons():
        official = comparison.origin != "generated"
        studies = {BENCHMARK: outcomes.of_benchmark(comparison)}
        studies |= outcomes.of_studies(comparison)
        for study, some in studies.items():
            if finished(some):
                yield suite_name(study, comparison.preset, official), some


def _places(rows: Sequence[Row]) -> dict[tuple[str, str], int]:
    """Return the place of each row on its problem, the best first."""
    places: dict[tuple[str, str], int] = {}
    for row in rows:  # the best of a problem come first
        before = sum(problem == row.problem for problem, _ in places)
        places[row.problem, row.model] = before + 1
    return places


def _problems(records: Sequence[RunRecord]) -> list[str]:
    keys = {point.key for record in records for point in record.points}
    return sorted(key.partition("/")[2] for key in keys if key.startswith(PERCENT))
