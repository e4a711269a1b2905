"""What is to be seen with a finished run in MLflow: its result, and a test sample it predicted."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from matplotlib.figure import Figure

from flows.steps.reports.pictures import length_unit
from flows.steps.training.run_record import Files, stored_record
from flows.steps.training.showcase import showcase_panels
from lsm_core.experiments.plans import benchmark_from_plain
from lsm_core.reporting.figures import png_of, showcase, svg_of
from lsm_core.result import Result
from storage.errors import StoreUnavailable
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from storage.tracking.echo import send
from storage.tracking.store import Tracking

logger = logging.getLogger(__name__)

Kind = TypeVar("Kind", str, bytes)


@dataclass
class Attachments:
    """Brings finished runs to MLflow, with their files and the tags of suites that use them.

    A training is done when its result is in the store: whatever goes wrong here is told and nothing
    more. What MLflow has is left as it is, so that finishing the same runs again makes up for what
    was missed.
    """

    root: Location
    tracking: Tracking
    suites: Collection[str] = ()
    missed: list[Result] = field(default_factory=list)
    why: str = ""

    def add(self, result: Result) -> None:
        """Send what MLflow lacks of a finished run."""
        if self.missed:
            self.missed.append(result)  # the others need not wait for an absent server again
            return
        try:
            files = partial(run_files, root=self.root)
            record = stored_record(self.root, result.identity, self.suites, files)
            if record is not None:
                send(self.tracking, record)
        except StoreUnavailable as error:
            self.why = str(error)
            self.missed.append(result)
        except Exception as error:  # whatever it is, the training is done and kept
            logger.warning("run %s lacks files in MLflow: %s", result.identity, error)

    def settle(self) -> None:
        """Try once more what was missed, since the store may be back, and tell what still is."""
        missed, self.missed = self.missed, []
        for result in missed:
            self.add(result)
        if self.missed:
            logger.warning(
                "%d finished runs lack files in MLflow: %s; `lsm runs sync` sends them from the "
                "store",
                len(self.missed),
                self.why,
            )


def run_files(result: Result, root: Location) -> tuple[Files, Files]:
    """Return the files and the pictures of a finished run, by name; made when asked for."""
    kept = root / "checkpoints" / result.identity / "result.json"
    files = {
        "result.json": kept.read_bytes,
        "sample.svg": lambda: sample_picture(result, root).encode(),
    }
    return files, {"sample": lambda: sample_picture(result, root, png_of)}


def sample_picture(
    result: Result,
    root: Location,
    drawn: Callable[[Figure], Kind] = svg_of,  # type: ignore[assignment]
) -> Kind:
    """Return the first test sample: what is given, what is true, prediction and error."""
    problem = benchmark_from_plain(result.settings["data"])
    arrays = Checkpoints(root / "checkpoints" / result.identity).arrays("showcase")
    truth, predicted = showcase_panels(problem, {result.model: arrays}, 0)
    return showcase(truth, predicted, length_unit(problem), drawn)
