"""The board of runs that were really trained: what is kept, what is written, what is found."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flows.cli.main import main
from flows.steps.models.packaging import trained_run
from flows.steps.reports.board import measured_runs
from flows.steps.reports.solver_rows import measure_solvers
from flows.steps.training import run as training
from flows.steps.training.cells import bind
from flows.steps.training.run_record import finished_record
from flows.steps.training.workplace import Workplace
from lsm_core.evaluation.samples import relative_of
from lsm_core.experiments import presets
from lsm_core.reporting.board import SOLVER, boards
from lsm_core.reporting.task import task_of
from lsm_core.result import Result
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from tests.end_to_end.browser import open_browser
from tests.flows.steps.data.generation import generated

MODELS = ("fno", "transolver", "ridge")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Result]]:
    """Return a store with a run of each model, and their results."""
    folder = tmp_path_factory.mktemp("store")
    root = Location.parse(str(folder))
    results = []
    for model in MODELS:
        made = presets.experiment("smoke", "burgers", model)
        benchmark = replace(made.data.benchmark, resolution=32, solver_points=64, solver_steps=20)
        cell = bind(replace(made, data=replace(made.data, benchmark=benchmark)))
        place = Workplace(
            root=root,
            dataset=generated(cell.data, root).location,
            tracking_uri=f"sqlite:///{folder}/mlflow.db",
            study="benchmark",
            n_threads=1,
        )
        results.append(training.train(cell, place, lambda message: None))
    return folder, results


def test_the_errors_of_all_test_samples_are_kept_with_the_run(store):
    folder, results = store
    for result in results:
        kept = Checkpoints(Location.parse(str(folder)) / "checkpoints" / result.identity)
        errors = kept.arrays("errors")
        assert len(errors["target"]) == result.settings["data"]["split_sizes"]["test"]
        assert relative_of(errors).mean() == pytest.approx(result.error)
        assert (result.epochs == 0) == (result.model == "ridge")
        worst = kept.arrays("worst")
        assert len(worst["predicted:final"]) == min(10, len(errors["target"]))
        found = np.linalg.norm(worst["predicted:final"] - worst["final"], axis=1)
        found /= np.linalg.norm(worst["final"], axis=1)
        assert found == pytest.approx(np.sort(relative_of(errors))[::-1][: len(found)], rel=1e-4)


def test_a_run_that_was_fitted_can_be_asked(store):
    folder, results = store
    root, ridge = Location.parse(str(folder)), results[-1]
    run = trained_run(ridge.identity, root)
    shown = Checkpoints(root / "checkpoints" / ridge.identity).arrays("showcase")
    found = run.predictor({"initial": shown["initial"]})["final"]
    assert found == pytest.approx(shown["predicted:final"], rel=1e-4, abs=1e-5)


def test_tags_find_the_rows_of_a_table_in_mlflow(store):
    _, results = store
    tags = [finished_record(result).tags for result in results]
    assert {tag["task"] for tag in tags} == {task_of(results[0]).id}
    assert {tag["division"] for tag in tags} == {"modern"}


def test_the_command_writes_a_page_and_a_file_a_task(store, tmp_path, capsys):
    folder, results = store
    assert main(["board", "--store", str(folder), "--out", str(tmp_path / "board")]) == 0
    said = capsys.readouterr().out
    task = task_of(results[0])
    assert task.name in said
    assert "ALARM" not in said
    (file,) = (tmp_path / "board").iterdir()
    assert file.name == f"{task.name}.csv"
    assert {line.split(",")[2] for line in file.read_text().splitlines()[1:]} == set(MODELS)
    page = (folder / "reports" / "board" / "index.html").read_text()
    assert 'table class="sortable"' in page
    assert "The 10 test samples with the largest relative errors" in page
    assert main(["board", "--store", str(folder), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [row["model"] for row in plain["tasks"][0]["rows"]]


def test_a_store_with_a_board_is_sent_to_mlflow(store, capsys):
    folder, _ = store
    assert main(["board", "--store", str(folder)]) == 0
    assert main(["runs", "sync", "--store", str(folder)]) == 0
    assert "not sent" not in capsys.readouterr().out


def test_swapped_results_are_found_in_the_store(store, capsys):
    folder, results = store
    root = Location.parse(str(folder))
    places = [root / "checkpoints" / result.identity / "result.json" for result in results]
    before = [place.read_bytes() for place in places]
    plain = [json.loads(content) for content in before]
    plain[0]["test"], plain[1]["test"] = plain[1]["test"], plain[0]["test"]
    try:
        for place, content in zip(places, plain, strict=True):
            place.write_bytes(json.dumps(content).encode())
        rows = boards(measured_runs(root))[0].rows
        found = {row.model for row in rows if any("by its samples" in a for a in row.alarms)}
        assert found == {"fno", "transolver"}
        assert main(["board", "--store", str(folder)]) == 0
        assert "ALARM  fno seed 0: rel_l2 is" in capsys.readouterr().out
    finally:
        for place, content in zip(places, before, strict=True):
            place.write_bytes(content)


def test_the_solver_is_a_row_like_the_others(store, tmp_path, capsys):
    folder, results = store
    root = Location.parse(str(folder))
    argv = ["board", "--store", str(folder), "--solvers", "--out", str(tmp_path), "--json"]
    assert main(argv) == 0
    said = capsys.readouterr()
    assert said.err.startswith(task_of(results[0]).name)
    (board,) = boards(measured_runs(root))
    (row,) = (row for row in board.rows if row.model == SOLVER)
    assert board.task == task_of(results[0])  # it stands in the table of the others
    assert (row.parameters, row.updates, row.seeds, row.alarms) == (0, 0, (0,), ())
    assert "ms a sample" in row.flags[1]
    (file,) = tmp_path.iterdir()
    assert SOLVER in file.read_text()
    solved = next(r.result for r in measured_runs(root) if r.result.model == SOLVER)
    model = solved.settings["model"]
    assert model["seconds_a_sample"] > 0
    assert model["network_seconds_a_sample"] > 0
    kept = Checkpoints(root / "checkpoints" / solved.identity).arrays("worst")
    found = np.linalg.norm(kept["predicted:final"] - kept["final"], axis=1)
    assert found[0] / np.linalg.norm(kept["final"][0]) == pytest.approx(solved.test["rel_l2_max"])
    assert finished_record(solved).tags["task"] == task_of(results[0]).id
    # A second time it is there.
    assert main(argv) == 0
    assert not capsys.readouterr().err


def test_data_that_is_gone_has_no_solver(store, tmp_path):
    folder, _ = store
    root = Location.parse(str(folder))
    said: list[str] = []
    measure_solvers(Location.parse(str(tmp_path)), measured_runs(root), said.append)
    assert len(said) == 1
    assert "its data is not in the store" in said[0]


SORTED = """(() => {
    const table = document.querySelector('table.sortable');
    const headings = [...table.querySelectorAll('th button')];
    const column = headings.findIndex(button => button.textContent === 'parameters');
    headings[column].click();
    return [...table.tBodies[0].rows].map(row => row.cells[column].textContent);
})()"""
FIRST_SEEN = """(() => {
    const box = document.querySelector('.wide'), cell = box.querySelector('tbody td:nth-child(2)');
    box.scrollLeft = 10000;
    const seen = cell.getBoundingClientRect();
    return [box.scrollLeft, seen.left - box.getBoundingClientRect().left, innerWidth];
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_read_on_a_desk_and_on_a_phone(store, tmp_path, width, scheme):
    folder, _ = store
    assert main(["board", "--store", str(folder)]) == 0
    with open_browser(tmp_path) as tab:
        tab.look_as(width, 900, scheme)
        tab.open(f"file://{folder}/reports/board/index.html")
        found = [int(text.replace(",", "")) for text in tab.evaluate(SORTED)]
        assert found == sorted(found)
        assert len(set(found)) > 1
        scrolled, left, inner = tab.evaluate(FIRST_SEEN)
        # The table scrolls in its box and the model's name stays; the page itself does not scroll.
        assert left == pytest.approx(0, abs=1) or not scrolled
        assert tab.evaluate("document.documentElement.scrollWidth") <= inner
        ground = "getComputedStyle(document.body).backgroundColor"
        assert (tab.evaluate(ground) == "rgb(255, 255, 255)") == (scheme == "light")
