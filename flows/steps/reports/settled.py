"""Whether all that a suite asks for is done: trained, recorded, registered and reported.

A command that finds it so answers from the store, without a server. What a suite has settled is
noted in the store when MLflow was seen to have it; that it still knows the runs is asked again.

Which cells a command means takes torch and all models to tell, which take longer to import than
everything else here. So that is noted, too, by what was asked for and by the sources that answered.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.steps.results import stored_result
from lsm_core.result import Outcome, Result
from storage.errors import StorageError
from storage.location import Location
from storage.tracking.charts_page import suite_tag
from storage.tracking.echo import FILES
from storage.tracking.registry import registered_name
from storage.tracking.store import Tracking

RUNS_AT_ONCE = 1000
SOURCES = Path(__file__).parents[3]
PACKAGES = ("lsm_core", "storage", "flows")


@dataclass(frozen=True)
class Meaning:
    """What a command means: the identities of its cells, their problems, and a page of MLflow."""

    identities: Sequence[str]
    benchmarks: Sequence[str]
    charts: str = ""
    names: Sequence[str] = ()
    """What each cell is called, where model and problem do not tell."""


def request_digest(request: Mapping[str, Any]) -> str:
    """Return the hash of what is asked for and of all sources, any of which may change its cells.

    Versions of libraries are no part of an identity, and not of this.
    """
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode())
    for file in sorted(file for each in PACKAGES for file in (SOURCES / each).rglob("*.py")):
        digest.update(file.relative_to(SOURCES).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:32]


def keep_meaning(root: Location, digest: str, meaning: Meaning) -> None:
    """Note which cells a command means."""
    (root / "settled" / "asked" / f"{digest}.json").write_bytes(
        json.dumps(asdict(meaning)).encode()
    )


def kept_meaning(root: Location, digest: str) -> Meaning | None:
    """Return which cells a command means, if these sources have answered it before."""
    try:
        return Meaning(**json.loads(_asked(root, digest).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


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
    root: Location, tracking: Tracking, suite: str, meaning: Meaning, report: str | None = None
) -> list[Result] | None:
    """Return the results of the cells of a suite if nothing is left to do for any, else None.

    They must be in the report of the suite. A study has none of its own: it is noted after the
    `report` of that name was written with it, which must be there.
    """
    wanted = set(meaning.identities)
    if report is not None and not (root / "reports" / report / "index.html").exists():
        return None
    if not wanted <= _noted(root, suite) & (wanted if report else _reported(root, suite)):
        return None
    try:
        runs = _runs(tracking, suite, set(meaning.benchmarks))
        known = {run.data.tags["identity"] for run in runs}
    except StorageError:
        return None
    found = [stored_result(root, identity) for identity in meaning.identities]
    results = [result for result in found if result is not None]
    return results if wanted <= known and len(results) == len(found) else None


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


def _asked(root: Location, digest: str) -> Location:
    return root / "settled" / "asked" / f"{digest}.json"


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
