"""The page of MLflow that shows a report: files of a run of its own, replaced by later reports."""

import hashlib
from urllib.parse import quote

from storage.tracking.echo import RunRecord, Sent, send
from storage.tracking.store import Tracking

EXPERIMENT = "reports"
"""Apart from the trainings, whose lists and charts have no use for runs without metrics."""
PAGE, TEXT = "index.html", "report.md"


def send_report(tracking: Tracking, name: str, page: bytes, text: bytes, at: int) -> Sent:
    """Bring a report to MLflow in place of the one before, if that is another."""
    return send(
        tracking,
        RunRecord(
            identity=f"report-{name}",
            name=f"report-{name}",
            started=at,
            tags={"report": name},
            status="FINISHED",
            ended=at,
            files={PAGE: lambda: page, TEXT: lambda: text},
            files_version=hashlib.sha256(page + text).hexdigest()[:16],
        ),
    )


def report_address(tracking: Tracking, run_id: str) -> str:
    """Return where a report is, below a server's address.

    A file:// or s3:// address is not followed from a page of Prefect, this one is.
    """
    # As of a training: left to itself the page offers what is for language models.
    return (
        f"#/experiments/{quote(tracking.experiment_id)}/runs/{quote(run_id)}/artifacts/{PAGE}"
        "?workflowType=machine_learning"
    )
