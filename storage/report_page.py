"""The page of MLflow that shows a report: files of a run of its own, replaced by later reports."""

from urllib.parse import quote

from storage.errors import StoreUnavailable
from storage.run_journal import without_credentials
from storage.run_log import Tracking
from storage.tracking_store import told

EXPERIMENT = "reports"
"""Apart from the trainings, whose lists and charts have no use for runs without metrics."""
PAGE, TEXT = "index.html", "report.md"


def keep_report(tracking: Tracking, name: str, page: bytes, text: str) -> str:
    """Keep a report in place of the one before, and return where it is, below a server's address.

    A file:// or s3:// address is not followed from a page of Prefect, this one is. StoreUnavailable
    if the tracking store does not take it.
    """
    number = tracking.experiment_id  # asks once, before anything waits for an answer
    run = tracking.open_run(f"report-{name}", f"report-{name}", {"report": name})
    run.add_file(PAGE, page)
    run.add_file(TEXT, text.encode())
    run.finish()
    if run.run_id is None or not run.is_sent():
        raise StoreUnavailable(
            f"the tracking store {without_credentials(tracking.uri)} does not have the report yet; "
            "`lsm runs sync` sends it"
        )
    with told(tracking.uri):
        kept = {file.path for file in tracking.client.list_artifacts(run.run_id)}
        if PAGE not in kept:
            raise ValueError("it refuses files")
    # As of a training: left to itself the page offers what is for language models.
    return (
        f"#/experiments/{quote(number)}/runs/{quote(run.run_id)}/artifacts/{PAGE}"
        "?workflowType=machine_learning"
    )
