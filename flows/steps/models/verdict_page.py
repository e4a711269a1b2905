"""A verdict to look at: figures and pictures of both models, in the store, MLflow and Prefect."""

import base64
import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flows.steps.models.judgement import Verdict
from flows.steps.reports.pictures import length_unit
from flows.steps.reports.runs_sync import send_stored_report
from flows.steps.results import stored_result
from flows.steps.training.showcase import showcase_panels
from lsm_core.evaluation.promotion import counted
from lsm_core.experiments.plans import benchmark_from_plain
from lsm_core.reporting.charts import error_pairs
from lsm_core.reporting.document import Picture, Section, html_page, markdown_page
from lsm_core.reporting.figures import showcase
from lsm_core.reporting.tables import Table
from lsm_core.result import Result
from storage.errors import StorageError
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from storage.tracking.registry import ModelRegistry
from storage.tracking.report_page import EXPERIMENT, PAGE, TEXT, report_address
from storage.tracking.store import open_tracking

if TYPE_CHECKING:
    from flows.settings import Settings

logger = logging.getLogger(__name__)

TITLES = {
    "Promoted": "{model}: version {challenger} is the new champion",
    "Kept": "{model}: version {champion} stays champion",
    "NeedsApproval": "{model}: version {challenger} needs a person's approval",
    "NothingNew": "{model}: nothing new",
}


def write_verdict(
    benchmark: str, verdict: Verdict, notes: Sequence[str], settings: "Settings"
) -> str:
    """Keep the page of a verdict, send it to MLflow, and return it as Markdown with pictures.

    A verdict without figures has no page of its own; what is said of it is returned.
    """
    title = TITLES[verdict.state].format(**vars(verdict))
    summary = _sentences([verdict.reason, *notes])
    if verdict.decision is None or verdict.challenger is None:
        return f"# {title}\n\n{summary}\n"
    runs = _runs(verdict, settings)
    pictures = _pictures(verdict, runs, settings.root)
    sections = [Section("Figures", (_figures(verdict),)), Section("Pictures", tuple(pictures))]
    name = f"retrain-{benchmark}-{verdict.challenger}"
    folder = settings.root / "reports" / name
    folder_files = {
        "results.json": json.dumps([run.to_plain() for run in runs.values()]),
        TEXT: markdown_page(title, summary, sections),
        PAGE: html_page(title, summary, sections),
    }
    for file, content in folder_files.items():
        (folder / file).write_bytes(content.encode())
    shown = markdown_page(title, summary, sections, [_inline(each.svg) for each in pictures])
    return f"{shown}\n{_link(name, folder, settings)}\n"


def _runs(verdict: Verdict, settings: "Settings") -> dict[str, Result]:
    """Return the runs of both models, as far as the store has them."""
    registry, found = ModelRegistry(settings.tracking_uri, settings.root), {}
    for role, number in (("champion", verdict.champion), ("challenger", verdict.challenger)):
        version = registry.find(f"{verdict.model}/{number}")
        result = stored_result(settings.root, version.tags["identity"])
        if result is not None:
            found[f"{role} (version {number})"] = result
    return found


def _figures(verdict: Verdict) -> Table:
    decision = verdict.decision
    assert decision is not None
    rows = [
        (
            f"mean error, {counted(decision.n_samples, 'locked sample')}",
            *_two(decision.champion_error, decision.challenger_error),
            f"{decision.challenger_error / decision.champion_error - 1:+.1%}",
            f"p = {decision.p_value:.2g} (< {decision.level:.2g})",
        )
    ]
    if decision.champion_new_error is not None and decision.challenger_new_error is not None:
        before, after = decision.champion_new_error, decision.challenger_new_error
        change = f"{after / before - 1:+.1%}"
        name = f"mean error, {counted(decision.n_new, 'new sample')}"
        rows.append((name, *_two(before, after), change, ""))
    if decision.control_error is not None:
        after = decision.control_error
        change = f"{after / decision.champion_error - 1:+.1%}"
        name = "the champion, trained on without new samples"
        rows.append((name, *_two(decision.champion_error, after), change, "control"))
    for guard in decision.guards:
        change = f"{guard.challenger / guard.champion - 1:+.1%}" if guard.champion else ""
        most = f"at most {guard.most:+.0%}: {'kept' if guard.holds else 'BROKEN'}"
        rows.append((guard.name, *_two(guard.champion, guard.challenger), change, most))
    return Table(
        headings=("", "champion", "challenger", "change", "bound"),
        rows=tuple(rows),
        caption="Relative L2 errors; lower is better.",
    )


def _two(before: float, after: float) -> tuple[str, str]:
    return _number(before), _number(after)


def _number(value: float) -> str:
    """Return four digits; of a count all of them, by thousands."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _pictures(verdict: Verdict, runs: dict[str, Result], root: Location) -> list[Picture]:
    pictures = []
    if verdict.pair is not None:
        champion, challenger = verdict.pair.champion, verdict.pair.challenger
        pairs = {"locked samples": (champion.locked.tolist(), challenger.locked.tolist())}
        if len(champion.new):
            pairs["new samples"] = (champion.new.tolist(), challenger.new.tolist())
        caption = "Every sample is a point; in the grey part the challenger is better."
        pictures.append(Picture(error_pairs(pairs), caption))
    shown = {}
    for role, run in runs.items():
        try:
            shown[role] = Checkpoints(root / "checkpoints" / run.identity).arrays("showcase")
        except FileNotFoundError:
            continue
    if shown:
        problem = benchmark_from_plain(next(iter(runs.values())).settings["data"])
        truth, predicted = showcase_panels(problem, shown, 0)
        caption = f"{problem.title}: the first test sample, as both models predict it."
        pictures.append(Picture(showcase(truth, predicted, length_unit(problem)), caption))
    return pictures


def _inline(svg: str) -> str:
    """Return a picture as an address that holds it: Prefect's page has no files of its own."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _link(name: str, folder: Location, settings: "Settings") -> str:
    tracking = open_tracking(settings.tracking_uri, settings.root, EXPERIMENT)
    try:
        sent = send_stored_report(settings.root, tracking, name)
        page = report_address(tracking, sent.run_id)
        return f"[The same page in MLflow]({settings.mlflow_address}/{page})"
    except StorageError as error:
        logger.warning("the verdict is not in MLflow: %s; the page is %s", error, folder / PAGE)
        return f"The page is `{folder / PAGE}`; `lsm runs sync` sends it to MLflow."


def _sentences(parts: Sequence[str]) -> str:
    """Return what is said as sentences, each of which begins with a capital."""
    return " ".join(f"{part[:1].upper()}{part[1:].rstrip('.')}." for part in parts if part)
