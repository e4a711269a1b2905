"""Rebuild in MLflow whatever the store holds: runs, costs, reports and registered models.

What MLflow has already is left alone. So it may be done at any time and any number of times, by
several at once, and into another database or server than the one that runs were recorded in.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from mlflow.entities import Run

from flows.errors import BadInput
from flows.steps.models.registration import echo_models
from flows.steps.reports.attachments import run_files
from flows.steps.reports.comparison_runs import sync_comparison
from flows.steps.reports.efficiency import cost_name, cost_record
from flows.steps.reports.results import stored_costs
from flows.steps.training.run_record import milliseconds, now, stored_record
from storage.errors import StorageError, StoreUnavailable
from storage.location import Location
from storage.tracking.earlier_runs import earlier_runs, move_run, remove_earlier_experiment
from storage.tracking.echo import Sent, send
from storage.tracking.registry import ModelRegistry, registered_name
from storage.tracking.report_page import EXPERIMENT, PAGE, TEXT, send_report
from storage.tracking.store import Tracking, open_tracking


@dataclass(frozen=True, kw_only=True)
class Synced:
    """What came of one thing: what was sent of it now, in words, and why anything is left."""

    what: str
    sent: str = ""
    left: str = ""


def sync(root: Location, tracking_uri: str) -> Iterator[Synced]:
    """Send what the tracking store lacks, and yield what came of each thing that the store holds.

    If the tracking store does not answer, the rest is not tried.
    """
    try:
        tracking = open_tracking(tracking_uri, root)
        _ = tracking.experiment_id
    except StoreUnavailable as error:
        yield Synced(what="everything", left=str(error))
        return
    for what, do in _things(root, tracking):
        try:
            yield Synced(what=what, sent=do())
        except (StorageError, BadInput, OSError) as error:
            yield Synced(what=what, left=str(error))
            if isinstance(error, StoreUnavailable) and not _answers(tracking):
                yield Synced(what="the rest", left="it was not tried")
                return


def describe(synced: list[Synced]) -> list[str]:
    """Return what was sent or left, a line each, for people."""
    lines = [
        f"{each.what}: {f'not sent: {each.left}' if each.left else each.sent}"
        for each in synced
        if each.sent or each.left
    ]
    n_known = sum(not each.sent and not each.left for each in synced)
    if n_known or not lines:
        things = _counted(n_known, "thing") or "0 things"
        lines.append(f"MLflow has all that the store holds of {things}")
    return lines


def _things(root: Location, tracking: Tracking) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the name of each thing in the store, and what sends it and says what was sent."""
    suites, failed = _suites(root), _failed(root)
    for identity in (root / "checkpoints").names():
        of_run = suites.get(identity, set())
        yield (
            f"run {identity}",
            partial(_send_run, root, tracking, identity, of_run, identity in failed),
        )
    for run in earlier_runs(tracking):
        yield f"earlier run {run.info.run_name}", partial(_move, root, tracking, run)
    costs = open_tracking(tracking.uri, root, "efficiency")
    for cost in stored_costs(root):
        record = cost_record(cost)
        yield f"cost of {cost_name(cost)}", partial(lambda r: _said(send(costs, r)), record)
    reports = open_tracking(tracking.uri, root, EXPERIMENT)
    for name in (root / "reports").names():
        # Otherwise it is being written, or it is the board, which is a page of the store alone.
        if {PAGE, TEXT} <= set((root / "reports" / name).names()):
            yield (
                f"report {name}",
                partial(lambda n: _said(send_stored_report(root, reports, n)), name),
            )
    for name in ModelRegistry(tracking.uri, root).record.names():
        yield (
            f"models {name}",
            partial(lambda n: _counted(echo_models(n, root, tracking.uri), "change"), name),
        )
    yield "comparison", partial(_send_comparison, root, tracking)
    yield "earlier experiment", partial(lambda: _removed(remove_earlier_experiment(tracking)))


def _move(root: Location, tracking: Tracking, run: Run) -> str:
    """Bring a run of the one experiment there was to that of its problem."""
    identity = run.data.tags.get("identity", "")
    known = stored_record(root, identity) if identity else None
    move_run(tracking, run, known, registered_name(run.data.tags.get("benchmark", "")))
    return "moved to the experiment of its problem"


def _send_comparison(root: Location, tracking: Tracking) -> str:
    sent = [each for _, each in sync_comparison(root, tracking) if each.anything]
    return _counted(len(sent), "model")


def _removed(was_there: bool) -> str:
    return "removed, it is empty" if was_there else ""


def send_stored_report(root: Location, tracking: Tracking, name: str) -> Sent:
    """Send a report that lies in the store, of the time of its newest result."""
    folder = root / "reports" / name
    page, text = ((folder / file).read_bytes() for file in (PAGE, TEXT))
    results = json.loads((folder / "results.json").read_bytes())
    times = [milliseconds(each["finished"]) for each in results if "finished" in each]
    return send_report(tracking, name, page, text, max(times, default=now()))


def _send_run(
    root: Location, tracking: Tracking, identity: str, suites: set[str], has_failed: bool
) -> str:
    files = partial(run_files, root=root)
    record = stored_record(root, identity, suites, files, has_failed=has_failed)
    return "" if record is None else _said(send(tracking, record))


def _suites(root: Location) -> dict[str, set[str]]:
    """Return the suites that use each run, by its identity."""
    found: dict[str, set[str]] = {}
    for suite in (root / "suites").names():
        for name in (root / "suites" / suite).names():
            found.setdefault(name.removesuffix(".json"), set()).add(suite)
    return found


def _failed(root: Location) -> set[str]:
    """Return the identities of runs of which a failure is noted."""
    folder = root / "failures"
    names = [name for suite in folder.names() for name in (folder / suite).names()]
    return {name.rpartition("-")[0] for name in names}


def _answers(tracking: Tracking) -> bool:
    try:
        with tracking.reached():
            tracking.client.search_experiments(max_results=1)
    except StoreUnavailable:
        return False
    return True


def _said(sent: Sent) -> str:
    """Return in words what was sent; empty if that was nothing."""
    parts = (
        "begun" if sent.is_new else "",
        _counted(sent.n_points, "point of curves", "points of curves"),
        _counted(sent.n_names, "tag, parameter or state", "tags, parameters or states"),
        _counted(sent.n_files, "file"),
    )
    return ", ".join(filter(None, parts))


def _counted(number: int, one: str, many: str = "") -> str:
    """Return a number of things in words; empty if there are none."""
    return f"{number} {one if number == 1 else many or one + 's'}" if number else ""
