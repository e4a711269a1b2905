"""The order of cells: each begins when its own data is complete and its own source has a result."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from lsm_core.result import Failure, Outcome, Result

if TYPE_CHECKING:
    from lsm_core.experiments.experiment import BoundExperiment
    from lsm_core.experiments.plans import DataPlan


@dataclass
class Schedule:
    """Cells and their sources, each once, and what has come of them so far.

    Nothing here runs anything: whoever does says what has begun, which data is there and how cells
    ended. A cell whose data or source failed fails with it, and the others go on.
    """

    cells: "dict[str, BoundExperiment]"
    places: dict[str, str] = field(default_factory=dict)
    """Where complete data lies, by its recipe."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, cells: "Iterable[BoundExperiment]") -> "Schedule":
        """Return the schedule of some cells and of all that they start from."""
        every = {each.identity: each for cell in cells for each in _with_sources(cell)}
        sources = {cell.source_identity for cell in every.values()}
        # What others wait for first, then the longest: the last to end began early.
        order = sorted(every.values(), key=lambda c: (c.identity not in sources, -steps_of(c)))
        return cls({cell.identity: cell for cell in order})

    def plans(self) -> "dict[str, DataPlan]":
        """Return the data of all cells, each once by its recipe, what most waits for it first."""
        return {cell.dataset: cell.data for cell in self.cells.values()}

    def ready(self) -> "list[BoundExperiment]":
        """Return the cells that may begin now, the most urgent first."""
        return [
            cell
            for identity, cell in self.cells.items()
            if identity not in self.begun
            and identity not in self.outcomes
            and cell.dataset in self.places
            and self._has_source(cell)
        ]

    def is_source(self, cell: "BoundExperiment") -> bool:
        """Return whether others start from a cell."""
        return any(each.source_identity == cell.identity for each in self.cells.values())

    def awaits_data(self) -> bool:
        """Return whether there are cells whose data is still being made."""
        return any(
            cell.dataset not in self.places
            for identity, cell in self.cells.items()
            if identity not in self.outcomes
        )

    def is_done(self) -> bool:
        """Return whether every cell has ended."""
        return len(self.outcomes) == len(self.cells)

    def end(self, cell: "BoundExperiment", outcome: Outcome) -> None:
        """Take in how a cell ended; what starts from one that failed has failed, too."""
        self.outcomes[cell.identity] = outcome
        if isinstance(outcome, Failure):
            for each in self.cells.values():
                if each.source_identity == cell.identity:
                    why = RuntimeError(f"its source {cell.identity} failed")
                    self.end(each, failure_of(each, why))

    def end_without_data(self, recipe: str, error: Exception) -> None:
        """Take in that some data could not be made: its cells have failed."""
        for cell in self.cells.values():
            if cell.dataset == recipe and cell.identity not in self.outcomes:
                self.end(cell, failure_of(cell, error))

    def _has_source(self, cell: "BoundExperiment") -> bool:
        source = cell.source_identity
        return source not in self.cells or isinstance(self.outcomes.get(source or ""), Result)


def failure_of(cell: "BoundExperiment", error: object) -> Failure:
    """Return the record of a cell that did not end well."""
    from flows.steps.training.cells import failed

    return failed(cell, error)


def steps_of(cell: "BoundExperiment") -> int:
    """Return how long a cell trains, as points of fields that pass through its model."""
    samples = cell.data.split_sizes["train"] * cell.training.fraction
    return round(cell.training.epochs * samples * prod(cell.benchmark.shape.space))


def _with_sources(cell: "BoundExperiment") -> "Iterator[BoundExperiment]":
    yield cell
    if not isinstance(cell.source, str | None):
        yield from _with_sources(cell.source)


def cell_name(cell: "BoundExperiment", setting: str = "") -> str:
    """Return what a person calls a cell: its problem, its model or setting, and its seed."""
    words: Sequence[str] = (cell.benchmark.name, setting or cell.model_name, f"seed {cell.seed}")
    return " ".join(words)
