"""Whether all that a suite asks for is done: trained, recorded, registered and reported.

A command that finds it so answers from the store, without a server. What a suite has settled is
noted in the store when MLflow was seen to have it; that it still knows the runs is asked again.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from flows.steps.results import stored_result
from lsm_core.experiments.experiment import BoundExperiment
from lsm_core.result import Outcome, Result
from storage.errors import StorageError
from storage.location import Location
from storage.tracking.charts_page import suite_tag
from storage.tracking.echo import FILES
from storage.tracking.registry import registered_name
from storage.tracking.store import Tracking

RUNS_AT_ONCE = 1000


def note_settled(
    root: Location, tracking: Tracking, suite: str, outcomes: Iterable[Outcome], *, registered: bool
) -> None:
    """Note which finished runs of a suite MLflow has, with their files and their models."""
    results = [each for each in outcomes if isinstance(each, Result)]
    finished = {each.identity for each in results}
    runs = _runs(tracking, suite, {each.benchmark for each in results})
    there = {run.data.tags["identity"] for run in runs if FILES in run.data.tags}
    if registered:
        with tracking.reached():
            versions = tracking.client.search_model_versions(max_results=10 * RUNS_AT_ONCE)
        there &= {version.tags.get("identity") for version in versions}
    settled = sorted(_noted(root, suite) | (finished & there))
    _note(root, suite).write_bytes(json.dumps(settled).encode())


def settled_results(
    root: Location, tracking: Tracking, suite: str, cells: Sequence[BoundExperiment]
) -> list[Result] | None:
    """Return the results of the cells of a suite if nothing is left to do for any, else None."""
    wanted = {cell.identity for cell in cells}
    if not wanted <= _noted(root, suite) & _reported(root, suite):
        return None
    try:
        runs = _runs(tracking, suite, {cell.benchmark.name for cell in cells})
        known = {run.data.tags["identity"] for run in runs}
    except StorageError:
        return None
    found = [stored_result(root, cell.identity) for cell in cells]
    results = [result for result in found if result is not None]
    return results if wanted <= known and len(results) == len(cells) else None


def _runs(tracking: Tracking, suite: str, benchmarks: set[str]) -> list[Any]:
    """Return the finished runs of a suite in the experiments of some problems."""
    numbers = [tracking.at(registered_name(each)).experiment_id for each in sorted(benchmarks)]
    with tracking.reached():
        return list(
            tracking.client.search_runs(
                numbers,
                f"tags.`{suite_tag(suite)}` = 'yes' and attributes.status = 'FINISHED'",
                max_results=RUNS_AT_ONCE,
            )
        )


def _note(root: Location, suite: str) -> Location:
    return root / "settled" / f"{suite}.json"


def _noted(root: Location, suite: str) -> set[str]:
    try:
        return set(json.loads(_note(root, suite).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return set()


def _reported(root: Location, suite: str) -> set[str]:
    """Return the runs that the report of a suite has, if its page is there."""
    folder = root / "reports" / suite
    try:
        results = json.loads((folder / "results.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return set()
    return {each["identity"] for each in results} if (folder / "index.html").exists() else set()
