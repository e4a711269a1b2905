"""A suite: runs that are compared with each other, from the cells to the report."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefect.artifacts import create_link_artifact, create_markdown_artifact

from flows.errors import CellsFailed
from flows.settings import Settings
from lsm_core.names import PresetName
from lsm_core.result import Failure, Outcome, suite_name
from storage.errors import StorageError

if TYPE_CHECKING:
    from flows.steps.reports.page import Report
    from lsm_core.experiments.experiment import BoundExperiment

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The cells of a study at a preset, on one kind of data, and how they are to be run."""

    study: str
    preset: PresetName
    official: bool = False
    """Whether published files take the place of the cells' own data."""
    cells: Sequence["BoundExperiment"]
    names: Sequence[str] = ()
    """What the cells are called, where model and benchmark do not tell."""
    register: bool = False
    """Whether the models go into the registry as their runs are finished."""
    at_once: int | None = None
    """How many cells train at once; as many as this machine has room for if it is not said."""
    n_threads: int | None = None
    """Of each cell; an equal part of the workers if it is not said."""
    n_ranks: int = 1

    @property
    def name(self) -> str:
        """Return what the runs are called together."""
        return suite_name(self.study, self.preset, self.official)


def finish_suite(
    suite: Suite,
    outcomes: Sequence[Outcome],
    settings: Settings,
    table: str = "",
    *,
    with_report: bool = True,
) -> "Report | None":
    """Keep what came of a suite, show it in Prefect and MLflow, and return its report.

    The artifact is the `table`, or the report's text if there is none. CellsFailed if a run failed,
    after all that.
    """
    from flows.steps.reports.page import write_report
    from flows.steps.reports.results import keep_outcomes

    keep_outcomes(settings.root, outcomes)
    report = write_report(settings.root, suite.preset, suite.official) if with_report else None
    shown = table or (report.markdown if report else "")
    create_markdown_artifact(shown, key=suite.study, description=f"Results of {suite.name}")
    if report is not None:
        link_report(settings, report)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    if failures:
        where = f"; see {report.page}" if report else ""
        raise CellsFailed(
            f"{len(failures)} of {len(outcomes)} runs failed, the first with "
            f"{failures[0].error}{where}"
        )
    return report


def link_report(settings: Settings, report: "Report") -> None:
    """Bring a report to MLflow and link it there; to its file if MLflow is away."""
    from flows.steps.reports.runs_sync import send_stored_report
    from storage.tracking.report_page import EXPERIMENT, report_address
    from storage.tracking.store import open_tracking

    tracking = open_tracking(settings.tracking_uri, settings.root, EXPERIMENT)
    file = f"the file is {report.page}"
    try:
        sent = send_stored_report(settings.root, tracking, report.name)
        page = report_address(tracking, sent.run_id)
        link, where = f"{settings.mlflow_address}/{page}", f"in MLflow; {file}"
    except StorageError as error:
        logger.warning("the report is not in MLflow: %s; %s", error, file)
        link, where = report.page.url, f"not in MLflow: {error}; {file}"
    create_link_artifact(
        link,
        link_text=f"Report {report.name}",
        key="report",
        description=f"Report with figures, {where}",
    )
