"""What came of a problem, told when its last cell has ended, while others still train."""

import time
from collections.abc import Collection

from flows.engine.schedule import Schedule, steps_of
from lsm_core.reporting.comparison import compare


class Standings:
    """Looks at a schedule whenever a cell has ended.

    Cells in `there_before` had a result when it began. A problem that has no others is not told:
    the table at the end has it.
    """

    def __init__(self, schedule: Schedule, there_before: Collection[str]) -> None:
        self._schedule, self._there_before = schedule, there_before
        self._began = time.monotonic()

    def after(self, identity: str) -> str:
        """Return a line to show after a cell has ended; empty if its problem has more to come."""
        cells, outcomes = self._schedule.cells, self._schedule.outcomes
        dataset = cells[identity].dataset
        same = [each for each, cell in cells.items() if cell.dataset == dataset]
        if not outcomes.keys() >= set(same) or not set(same) - set(self._there_before):
            return ""
        rows = compare(outcomes[each] for each in same)
        shown = ", ".join(f"{row.model} {row.errors.text()}" for row in rows)
        return f"{rows[0].problem}: {shown}{self._to_come()}"

    def _to_come(self) -> str:
        """Return how much is left, and how long that takes if it goes on as it went."""
        cells, outcomes = self._schedule.cells, self._schedule.outcomes
        n_left = len(cells) - len(outcomes)
        trained = sum(steps_of(cells[each]) for each in outcomes if each not in self._there_before)
        if not n_left or not trained:
            return ""
        left = sum(steps_of(cell) for each, cell in cells.items() if each not in outcomes)
        minutes = (time.monotonic() - self._began) * left / trained / 60
        how_long = f"about {minutes:.0f} minutes" if minutes >= 1.5 else "about a minute"
        return f" ({n_left} of {len(cells)} runs to come, {how_long})"
