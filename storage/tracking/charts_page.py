"""The pages of MLflow that show runs side by side, ready without a click.

How a page looks is kept as MLflow's own button for sharing keeps it, in a tag of the experiment.
Runs are grouped by what they are called in tables, so that a model has one colour and one legend on
every page, and its bars and curves are means over seeds.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from storage.tracking.store import Tracking

SHARED_VIEW = "mlflow.sharedViewState."
NOTE = "mlflow.note.content"
"""The tag that MLflow shows as the description of an experiment."""
COLUMNS = 2
"""Charts side by side; with three, names are cut on a laptop's screen."""
HEIGHT = 250
"""Of a chart, in pixels; with MLflow's 360 the names below the first bars are off such a screen."""
SURROGATE = "surrogate"
"""The tag of a run that says which model it is of, as tables call it.

MLflow makes the colour of a group from the names of its tag and its value. With this one nobody
takes the colours of LSM (ours), FNO and U-Net for each other.
"""
BY_SURROGATE = {
    "aggregateFunction": "average",
    "groupByKeys": [{"mode": "tag", "groupByData": SURROGATE}],
}


def suite_tag(suite: str) -> str:
    """Return the tag of runs that a suite uses; several suites may use the same run."""
    return f"suite/{suite}"


def metric(name: str) -> str:
    """Return how a page names a metric."""
    return f"metrics.`{name}`"


def view_address(
    tracking: Tracking,
    suite: str = "",
    best_first: str = "",
    columns: Sequence[str] = (),
    charts: Sequence[Mapping[str, Any]] = (),
    *,
    with_runs: bool = True,
) -> str:
    """Return where the charts of a suite, or of all runs, are, below the address of a server.

    `best_first` is the metric whose least value comes first, `columns` are those of the table, and
    `charts` are drawn before those of other metrics, `with_runs` beside the list of runs.
    StoreUnavailable if none answers.
    """
    view: dict[str, Any] = {"runsHiddenMode": "SHOW_ALL", "groupBy": BY_SURROGATE}
    if suite:
        view["searchFilter"] = f"tags.`{suite_tag(suite)}` = 'yes'"
    if best_first:
        view |= {"orderByKey": metric(best_first), "orderByAsc": True}
    if columns:
        view["selectedColumns"] = list(columns)
    if charts:
        view |= _drawn(charts)
    if not with_runs:
        view["runListHidden"] = True
    content = json.dumps(view, sort_keys=True)
    key = hashlib.sha256(content.encode()).hexdigest()
    number = tracking.experiment_id
    with tracking.reached():
        known = tracking.client.get_experiment(number).tags
        if known.get(f"{SHARED_VIEW}{key}") != content:
            tracking.client.set_experiment_tag(number, f"{SHARED_VIEW}{key}", content)
    # Left to itself the page offers what is for language models.
    page = f"#/experiments/{quote(number)}/runs?workflowType=machine_learning"
    return f"{page}&compareRunsMode=CHART&viewStateShareKey={key}"


def set_note(tracking: Tracking, text: str) -> bool:
    """Set the description of an experiment; return whether it was another one."""
    number = tracking.experiment_id
    with tracking.reached():
        if tracking.client.get_experiment(number).tags.get(NOTE) == text:
            return False
        tracking.client.set_experiment_tag(number, NOTE, text)
    return True


def _drawn(charts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return charts as the page keeps them; each names its `section`."""
    sections = list(dict.fromkeys(str(chart["section"]) for chart in charts))
    return {
        "compareRunSections": [
            {
                **{"uuid": name, "name": name, "display": True, "isReordered": True},
                **{"deleted": False, "isGenerated": False},
                **{"columns": COLUMNS, "cardHeight": HEIGHT},
            }
            for name in sections
        ],
        "compareRunCharts": [
            {
                "uuid": f"chart-{number}",
                "deleted": False,
                "isGenerated": False,
                "metricSectionId": chart["section"],
                **{key: value for key, value in chart.items() if key != "section"},
            }
            for number, chart in enumerate(charts)
        ],
        "isAccordionReordered": True,
    }
