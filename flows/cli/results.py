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
    """Write the report of runs, or pictures of the data."""
    from flows.settings import current_settings
    from flows.steps.reports.page import write_report

    settings = current_settings()
    if options.about == "results":
        from flows.steps.reports.results_page import write_results_page

        files = write_results_page(settings.root, Path(options.out), options.note)
        written = [str(path) for path in files]
        show(written, "\n".join(f"wrote {path}" for path in written), as_json=options.json)
        return
    if options.about == "data":
        from flows.steps.reports.data_page import write_data_report

        page = str(write_data_report(settings.root, options.preset or "quick"))
        show({"report": page}, f"Report:  {shown_path(page)}", as_json=options.json)
        return
    report = write_report(settings.root, options.preset)
    show({"report": str(report.page)}, report.markdown, as_json=options.json)
    if not options.json:
        show_where(settings, str(report.page))


def runs(options: argparse.Namespace) -> None:
    """Send what the tracking store lacks of all that the store holds."""
    from dataclasses import asdict

    from flows.errors import CellsFailed
    from flows.settings import Settings
    from flows.steps.reports.runs_sync import describe, sync

    settings = Settings.from_environment()
    synced = list(sync(settings.root, settings.tracking_uri))
    show([asdict(each) for each in synced], "\n".join(describe(synced)), as_json=options.json)
    if any(each.left for each in synced):
        raise CellsFailed("not everything could be sent; the store keeps it, try again later")


def show_results(results: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print a table of results."""
    from lsm_core.reporting.comparison import compare
    from lsm_core.reporting.tables import comparison_table
    from lsm_core.result import outcome_from_plain

    rows = compare(outcome_from_plain(result) for result in results)
    show(results, comparison_table(rows).text(), as_json=as_json)


def show_where(settings: "Settings", report: str, suite: str = "") -> None:
    """Say where to look further: the report, and the charts of a suite or of all runs."""
    from storage.credentials import without_credentials
    from storage.errors import StoreUnavailable
    from storage.tracking.charts_page import charts_address
    from storage.tracking.store import open_tracking

    print(f"\nReport:  {shown_path(report)}")
    try:
        charts = charts_address(open_tracking(settings.tracking_uri, settings.root), suite)
    except StoreUnavailable as error:
        print(f"MLflow:  {error}; `lsm runs sync` sends what waits")
        return
    if settings.tracking_uri.startswith("http"):
        print(f"MLflow:  {settings.mlflow_address}/{charts}")
        return
    port = settings.mlflow_port
    mlflow = shown_path(str(Path(sys.executable).parent / "mlflow"))
    shown = without_credentials(settings.tracking_uri)
    print(f"MLflow:  {mlflow} server --backend-store-uri {shown} --port {port}")
    print(f"         then open {settings.mlflow_address}/{charts}")
