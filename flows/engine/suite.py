"""A suite: runs that are compared with each other, from the cells to the report."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefect import task
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.errors import CellsFailed
from flows.parameters import Where
from flows.settings import Settings
from lsm_core.names import PresetName
from lsm_core.result import Failure, Outcome, suite_name
from storage.errors import StorageError

if TYPE_CHECKING:
    from flows.steps.reports.page import Report
    from lsm_core.experiments.experiment import BoundExperiment
    from lsm_core.reporting.tables import Table

SMALL: tuple[PresetName, ...] = ("smoke", "quick")

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
    device: str | None = None
    """What cells train on; what the settings say where they train if it is not said here."""
    where: Where = "here"

    @property
    def on_pool(self) -> bool:
        """Return whether each cell is a run of `cell/train-cell`, on any worker of its pool.

        That costs a cell some tens of seconds, which small presets would feel.
        """
        return self.where == "pool" or (self.where == "auto" and self.preset not in SMALL)

    @property
    def name(self) -> str:
        """Return what the runs are called together."""
        return suite_name(self.study, self.preset, self.official)


def finish_suite(
    suite: Suite,
    outcomes: Sequence[Outcome],
    settings: Settings,
    table: "Table | None" = None,
    *,
    with_report: bool = True,
) -> "Report | None":
    """Keep what came of a suite, show it in Prefect and MLflow, and return its report.

    The artifact is the `table`, or the comparison of models if there is none. CellsFailed if a run
    failed, after all that.
    """
    from flows.steps.reports.results import keep_outcomes
    from lsm_core.reporting.comparison import compare
    from lsm_core.reporting.tables import comparison_table

    keep_outcomes(settings.root, outcomes)
    report = write_report(suite, settings) if with_report else None
    shown = table or comparison_table(compare(outcomes))
    create_table_artifact(
        [dict(zip(shown.headings, row, strict=True)) for row in shown.rows],
        key=artifact_key(suite.name),
        description=f"Results of {suite.name}. {shown.caption}",
    )
    if report is not None:
        link_report(settings, report)
    link_charts(settings, suite)
    _note_settled(suite, outcomes, settings)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    if failures:
        where = f"; see {report.page}" if report else ""
        raise CellsFailed(
            f"{len(failures)} of {len(outcomes)} runs failed, the first with "
            f"{failures[0].error}{where}"
        )
    return report


@task(name="report", task_run_name="report {suite.name}", cache_policy=NO_CACHE)
def write_report(suite: Suite, settings: Settings) -> "Report":
    """Write the report of all results that the store has of a preset."""
    from flows.steps.reports import page

    return page.write_report(settings.root, suite.preset, suite.official)


def _note_settled(suite: Suite, outcomes: Sequence[Outcome], settings: Settings) -> None:
    """Note what is done for good, so that the same command answers at once the next time."""
    from flows.steps.reports.settled import note_settled
    from storage.tracking.store import open_tracking

    tracking = open_tracking(settings.tracking_uri, settings.root)
    with suppress(StorageError):  # then there is something left to do
        note_settled(settings.root, tracking, suite.name, outcomes, registered=suite.register)


def artifact_key(name: str) -> str:
    """Return a name as Prefect takes it for the page of an artifact."""
    return name.replace("_", "-")


def link_charts(settings: Settings, suite: Suite) -> None:
    """Link the runs of a suite side by side in MLflow, unless that is away."""
    from flows.steps.reports.comparison_runs import comparison_page
    from storage.tracking.store import open_tracking

    try:
        tracking = open_tracking(settings.tracking_uri, settings.root)
        page = comparison_page(settings.root, tracking, suite.name)
    except StorageError as error:
        logger.warning("the runs are not compared in MLflow: %s", error)
        return
    create_link_artifact(
        f"{settings.mlflow_address}/{page}",
        link_text=f"Runs of {suite.name} in MLflow",
        key=artifact_key(f"mlflow-{suite.name}"),
        description="The runs of this comparison side by side.",
    )


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
        key=artifact_key(f"report-{report.name}"),
        description=f"Report with figures, {where}",
    )
