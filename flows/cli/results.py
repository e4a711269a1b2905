"""What the commands of results do."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.session import show, shown_path

if TYPE_CHECKING:
    from flows.settings import Settings


def report(options: argparse.Namespace) -> None:
    """Write the report of runs or pictures of data."""
    from flows.settings import current_settings
    from flows.steps.reports.page import write_data_report, write_report, write_results_page

    settings = current_settings()
    if options.about == "results":
        files = write_results_page(settings.root, Path(options.out), options.note)
        written = [str(path) for path in files]
        show(options, written, "\n".join(f"wrote {path}" for path in written))
    elif options.about == "data":
        page = str(write_data_report(settings.root, options.preset or "quick"))
        show(options, {"report": page}, f"Report:  {shown_path(page)}")
    else:
        report = write_report(settings.root, options.preset)
        show(options, {"report": str(report.page)}, report.markdown)
        show_where(options, settings, str(report.page))


def board(options: argparse.Namespace) -> None:
    """Compare models task by task, with what each figure rests on, and write the page."""
    from flows.settings import current_settings
    from flows.steps.reports.board import board_text, measured_runs, write_board
    from lsm_core.reporting.board import boards

    settings = current_settings()
    measured = measured_runs(settings.root, options.preset)
    if options.solvers:
        from flows.steps.reports.solver_rows import measure_solvers

        measure_solvers(settings.root, measured, lambda line: print(line, file=sys.stderr))
        measured = measured_runs(settings.root, options.preset)
    found = boards(measured)
    page = str(write_board(settings.root, measured, options.out))
    plain = {"page": page, "tasks": [board.to_plain() for board in found]}
    show(options, plain, f"{board_text(found)}\n\nBoard:  {shown_path(page)}")


def runs(options: argparse.Namespace) -> None:
    """Send what MLflow lacks of all that the store holds."""
    from dataclasses import asdict

    from flows.errors import CellsFailed
    from flows.settings import Settings
    from flows.steps.reports.runs_sync import describe, sync

    settings = Settings.from_environment()
    synced = list(sync(settings.root, settings.tracking_uri))
    show(options, [asdict(each) for each in synced], "\n".join(describe(synced)))
    if any(each.left for each in synced):
        raise CellsFailed("not everything could be sent; the store keeps it, try again later")


def result_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of results."""
    from lsm_core.reporting.comparison import compare
    from lsm_core.reporting.tables import comparison_table
    from lsm_core.result import outcome_from_plain

    rows = compare(outcome_from_plain(result) for result in results)
    return comparison_table(rows).text()


def show_where(
    options: argparse.Namespace,
    settings: "Settings",
    report: str,
    suite: str = "",
    charts: str = "",
) -> str:
    """Tell people where to look further: the report, and the charts of a suite or of all runs.

    Return the page of MLflow with the charts: the one that is given, which is not looked at again,
    or one that has all that is finished; nothing if MLflow is away, or nobody reads it here.
    """
    if options.json:
        return charts
    print(f"\nReport:  {shown_path(report)}")
    if not charts:
        from flows.steps.reports.comparison_runs import comparison_page
        from storage.errors import StoreUnavailable
        from storage.tracking.store import open_tracking

        try:
            tracking = open_tracking(settings.tracking_uri, settings.root)
            charts = comparison_page(settings.root, tracking, suite)
        except StoreUnavailable as error:
            print(f"MLflow:  {error}; `lsm runs sync` sends what waits")
            return ""
    _show_charts(settings, charts)
    return charts


def _show_charts(settings: "Settings", charts: str) -> None:
    from storage.credentials import without_credentials

    if settings.tracking_uri.startswith("http"):
        print(f"MLflow:  {settings.mlflow_address}/{charts}")
        return
    port = settings.mlflow_port
    mlflow = shown_path(str(Path(sys.executable).parent / "mlflow"))
    shown = without_credentials(settings.tracking_uri)
    print(f"MLflow:  {mlflow} server --backend-store-uri {shown} --port {port}")
    print(f"         then open {settings.mlflow_address}/{charts}")
