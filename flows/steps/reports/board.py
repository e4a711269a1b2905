"""The board of a store: its runs with the errors of their samples, as page, table and files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from flows.errors import BadInput
from flows.steps.reports.pictures import length_unit
from flows.steps.reports.results import read_outcomes
from flows.steps.training.showcase import PREDICTED
from lsm_core.evaluation.samples import quantiles
from lsm_core.experiments.plans import benchmark_from_plain
from lsm_core.problems.panel import Panel
from lsm_core.reporting.board import Board, Measured, boards
from lsm_core.reporting.board_tables import board_csv, board_table, claims_table
from lsm_core.reporting.comparison import row_name
from lsm_core.reporting.document import Block, Folded, Picture, Section, html_page
from lsm_core.reporting.figures import panel_figure
from lsm_core.reporting.tables import table_of
from lsm_core.reporting.task import task_of
from lsm_core.result import Result
from storage.location import Location
from storage.runs.checkpoints import Checkpoints

SUMMARY = (
    "One table a task: data, split, normalisation, metric and protocol under one id. What authors "
    "claim stands beside what was measured here. A click on a heading sorts. `lsm board` writes "
    "this page and the files from the runs of a store."
)


def measured_runs(root: Location, preset: str | None = None) -> list[Measured]:
    """Return the runs of the main tables with the errors of their samples; BadInput if none."""
    outcomes = read_outcomes(root)
    results = [
        result
        for comparison in outcomes.comparisons()
        if preset in (None, comparison.preset)
        for result in outcomes.of_board(comparison)
    ]
    if not results:
        raise BadInput("there are no runs to compare; run `lsm benchmark` first")
    return [Measured(result, _arrays(root, result, "errors")) for result in results]


def _arrays(root: Location, result: Result, name: str) -> dict[str, NDArray[Any]] | None:
    try:
        return Checkpoints(root / "checkpoints" / result.identity).arrays(name)
    except FileNotFoundError:
        return None


def write_board(root: Location, runs: Sequence[Measured], folder: Path | None = None) -> Location:
    """Write the page into the store, and a CSV a task into a folder if one is given."""
    found = boards(runs)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for board in found:
            (folder / f"{board.task.name}.csv").write_text(board_csv(board), encoding="utf-8")
    sections = [_section(board, runs, root) for board in found]
    page = root / "reports" / "board" / "index.html"
    page.write_bytes(html_page("Board", SUMMARY, sections).encode())
    return page


def board_text(found: Sequence[Board]) -> str:
    """Return the tables for a terminal, with what is wrong below each."""
    parts = []
    for board in found:
        alarms = [f"ALARM  {alarm}" for row in board.rows for alarm in row.alarms]
        parts.append("\n".join([f"{board.task.name}\n", board_table(board).text(), *alarms]))
    return "\n\n".join(parts)


def _section(board: Board, runs: Sequence[Measured], root: Location) -> Section:
    own = [run for run in runs if task_of(run.result).id == board.task.id]
    alarms = [f"Alarm: {alarm}." for row in board.rows for alarm in row.alarms]
    blocks: list[Block] = [*alarms, board_table(board)]
    if any(row.claims for row in board.rows):
        blocks.append(Folded("Claimed figures and their sources", claims_table(board)))
    spread = [
        {"model": row_name(run.result), "seed": str(run.result.seed)}
        | {part: f"{value:.4g}" for part, value in quantiles(run.errors).items()}
        for run in own
        if run.errors is not None
    ]
    if spread:
        caption = "Relative error that this part of the test samples stays below."
        blocks.append(Folded("Quantiles over the samples", table_of(spread, caption, n_names=2)))
    return Section(board.task.title, (*blocks, *_worst(board, own, root)))


def _worst(board: Board, own: Sequence[Measured], root: Location) -> list[Block]:
    """Return the worst samples of the best model, if they were kept."""
    best = [run.result for run in own if row_name(run.result) == board.rows[0].model]
    arrays = _arrays(root, best[0], "worst") if best else None
    if arrays is None:
        return []
    problem = benchmark_from_plain(best[0].settings["data"])
    truth = {name: values for name, values in arrays.items() if not name.startswith(PREDICTED)}
    guess = {name.removeprefix(PREDICTED): arrays[name] for name in arrays if name not in truth}
    columns: list[list[Panel]] = []
    for sample in range(len(next(iter(truth.values())))):
        true = {name: values[sample] for name, values in truth.items()}
        made = {**true, **{name: values[sample] for name, values in guess.items()}}
        named = (("truth", true), ("prediction", made))
        columns.append([replace(problem.panels(s)[-1], title=title) for title, s in named])
    caption = (
        f"The {len(columns)} test samples with the largest relative errors of "
        f"{row_name(best[0])}, seed {best[0].seed}, the worst first: truth above, prediction below."
    )
    unit, lines = length_unit(problem), [columns[n : n + 5] for n in range(0, len(columns), 5)]
    captions = [caption, *["The next of them."] * (len(lines) - 1)]
    return [
        Picture(panel_figure(line, unit, one_range=True), said)
        for line, said in zip(lines, captions, strict=True)
    ]
