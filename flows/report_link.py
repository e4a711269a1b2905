"""The report among the artifacts of a flow run: a link that a browser follows."""

import logging
from typing import TYPE_CHECKING

from prefect.artifacts import create_link_artifact

from flows.settings import Settings
from storage.errors import StorageError

if TYPE_CHECKING:
    from flows.steps.report import Report

logger = logging.getLogger(__name__)


def link_report(settings: Settings, report: "Report") -> None:
    """Bring a report to MLflow and link it there; to its file if MLflow is away."""
    from flows.steps.training import open_tracking
    from storage.report_page import EXPERIMENT, keep_report

    tracking = open_tracking(settings.tracking_uri, settings.root, EXPERIMENT)
    file = f"the file is {report.page}"
    try:
        page = keep_report(tracking, report.name, report.page.read_bytes(), report.markdown)
        link, told = f"{settings.mlflow_address}/{page}", f"in MLflow; {file}"
    except StorageError as error:
        logger.warning("the report is not in MLflow: %s; %s", error, file)
        link, told = report.page.url, f"not in MLflow: {error}; {file}"
    create_link_artifact(
        link,
        link_text=f"Report {report.name}",
        key="report",
        description=f"Report with figures, {told}",
    )
