"""A problem is told when its last cell has ended, with what is left to do."""

import re

import pytest

from flows.engine.schedule import Schedule
from flows.engine.standings import Standings
from flows.steps.training.cells import benchmark_cells
from tests.lsm_core.reporting.results import result


@pytest.fixture
def schedule() -> Schedule:
    return Schedule.of(benchmark_cells("smoke", ["burgers", "darcy"], ["lsm_ours", "fno"], [0]))


def ended(schedule: Schedule, standings: Standings, benchmark: str) -> list[str]:
    """Return what is told after each cell of a problem, the first with the larger error."""
    lines = []
    mine = [cell for cell in schedule.cells.values() if cell.benchmark.name == benchmark]
    for cell, error in zip(mine, (0.5, 0.25), strict=True):
        made = result(
            identity=cell.identity, benchmark=benchmark, model=cell.model_name, error=error
        )
        schedule.end(cell, made)
        lines.append(standings.after(cell.identity))
    return lines


def test_a_problem_is_told_best_model_first_with_what_is_left(schedule: Schedule) -> None:
    standings = Standings(schedule, ())
    nothing, line = ended(schedule, standings, "darcy")
    assert nothing == ""
    assert re.match(r"darcy \(.*\): .* 0\.25, .* 0\.5 \(2 of 4 runs to come, about ", line)
    _, last = ended(schedule, standings, "burgers")
    assert last.startswith("burgers (")
    assert "to come" not in last


def test_what_was_there_before_is_left_to_the_table(schedule: Schedule) -> None:
    known = {i for i, cell in schedule.cells.items() if cell.benchmark.name == "darcy"}
    standings = Standings(schedule, known)
    assert ended(schedule, standings, "darcy") == ["", ""]
    assert ended(schedule, standings, "burgers")[1].startswith("burgers (")
