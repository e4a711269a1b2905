"""The page of MLflow that shows the runs of a suite side by side, ready without a click."""

import hashlib
import json
from urllib.parse import quote

from storage.tracking.store import Tracking

SHARED_VIEW = "mlflow.sharedViewState."


def suite_tag(suite: str) -> str:
    """Return the tag of runs that a suite uses; several suites may use the same run."""
    return f"suite/{suite}"


def charts_address(tracking: Tracking, suite: str = "") -> str:
    """Return where the charts of a suite, or of all runs, are, below the address of a server.

    Left to itself the page draws the first ten runs. How it looks otherwise is kept as MLflow's own
    button for sharing keeps it, in a tag of the experiment. StoreUnavailable if none answers.
    """
    view = {"runsHiddenMode": "SHOW_ALL"}
    if suite:
        view["searchFilter"] = f"tags.`{suite_tag(suite)}` = 'yes'"
    content = json.dumps(view, sort_keys=True)
    key = hashlib.sha256(content.encode()).hexdigest()
    number = tracking.experiment_id
    with tracking.reached():
        tracking.client.set_experiment_tag(number, f"{SHARED_VIEW}{key}", content)
    page = f"#/experiments/{quote(number)}/runs?compareRunsMode=CHART"
    return f"{page}&viewStateShareKey={key}"
