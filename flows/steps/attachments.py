"""What is to be seen with a finished run in MLflow: its result, and a test sample it predicted."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flows.steps.report_pictures import length_unit
from flows.steps.showcase import showcase_panels
from flows.steps.surrogates import benchmark_of
from lsm_core.reporting.figures import showcase
from storage.checkpoints import Checkpoints
from storage.errors import StoreUnavailable
from storage.location import Location
from storage.run_files import attach, queue, send_queued
from storage.run_log import Tracking

logger = logging.getLogger(__name__)


@dataclass
class Attachments:
    """Attaches files to the records of finished runs.

    A training is done when its result is in the store: whatever goes wrong here is told and nothing
    more. A run that has its files is left as it is, so that finishing the same runs again makes up
    for what was missed.
    """

    root: Location
    tracking: Tracking
    missed: list[dict[str, Any]] = field(default_factory=list)
    why: str = ""

    def add(self, result: dict[str, Any]) -> None:
        """Attach to a finished run what it lacks."""
        identity, files = result["identity"], run_files(result, self.root)
        try:
            waits = queue(self.tracking, identity, files)
            if self.missed:
                self.missed.append(result)  # the others need not wait for an absent server again
            elif waits:
                send_queued(self.tracking, identity)
            else:
                attach(self.tracking, identity, files)
        except StoreUnavailable as error:
            self.why = str(error)
            self.missed.append(result)
        except Exception as error:  # whatever it is, the training is done and kept
            logger.warning("run %s lacks files in MLflow: %s", identity, error)

    def settle(self) -> None:
        """Try once more what was missed, since the store may be back, and tell what still is."""
        missed, self.missed = self.missed, []
        for result in missed:
            self.add(result)
        if self.missed:
            logger.warning(
                "%d finished runs lack files in MLflow: %s; `lsm runs sync` sends those that wait "
                "with their runs, the same command adds the others, without training again",
                len(self.missed),
                self.why,
            )


def run_files(result: dict[str, Any], root: Location) -> dict[str, Callable[[], bytes]]:
    """Return what is attached to a finished run, by name; made when it is asked for."""
    kept = root / "checkpoints" / result["identity"] / "result.json"
    return {
        "result.json": kept.read_bytes,
        "sample.svg": lambda: sample_picture(result, root).encode(),
    }


def sample_picture(result: dict[str, Any], root: Location) -> str:
    """Return the first test sample as SVG: what is given, what is true, prediction and error."""
    problem = benchmark_of(result["settings"]["data"])
    arrays = Checkpoints(root / "checkpoints" / result["identity"]).arrays("showcase")
    truth, predicted = showcase_panels(problem, {result["model"]: arrays}, 0)
    return showcase(truth, predicted, length_unit(problem))
