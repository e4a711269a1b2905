import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.errors import BadInput
from flows.steps.reports.page import write_report, write_results_page
from flows.steps.reports.pictures import shown_models
from flows.steps.reports.results import (
    Comparison,
    keep_cost,
    keep_outcomes,
    read_outcomes,
    stored_costs,
)
from lsm_core.benchmarks.burgers import Burgers
from lsm_core.reporting.board import SOLVER
from lsm_core.result import Outcome
from storage.location import Location
from tests.lsm_core.reporting.results import failure, result
from tests.lsm_core.reporting.test_efficiency import cost

LATER = {"finished": "2026-11-17T12:00:00+00:00"}


def stored(folder: Path, identity: str, **changes: Any) -> None:
    """Keep a result with all that a report shows of it."""
    data = {"benchmark": "burgers", "parameters": Burgers(resolution=256).parameters()}
    settings = {
        "data": {**data, "split_sizes": {"test": 4}},
        "training": {"batch_size": 4},
        "model": {"widths": [16, 32, 64, 128]},
    }
    place = folder / "checkpoints" / identity
    place.mkdir(parents=True)
    whole = result(identity=identity, **{"settings": settings, **changes})
    (place / "result.json").write_text(json.dumps(whole.to_plain()))


def root_of(folder: Path) -> Location:
    return Location.parse(str(folder))


def main(folder: Path) -> list[str]:
    """Return the identities of the main table at preset quick."""
    outcomes = read_outcomes(root_of(folder)).of_benchmark(Comparison("quick"))
    return [outcome.identity for outcome in outcomes]


def of_study(folder: Path, name: str) -> list[Outcome]:
    return read_outcomes(root_of(folder)).of_studies(Comparison("quick"))[name]


def test_a_run_that_two_suites_share_is_in_both(tmp_path: Path) -> None:
    stored(tmp_path, "shared", setting="")
    stored(tmp_path, "own", study="burgers-forms", setting="smooth form")
    shared = result(identity="shared", study="burgers-forms")
    names = ("released form", "same")
    keep_outcomes(root_of(tmp_path), [replace(shared, setting=name) for name in names])
    assert {run.setting: run.identity for run in of_study(tmp_path, "burgers-forms")} == {
        "smooth form": "own",
        "released form": "shared",
        "same": "shared",
    }
    assert main(tmp_path) == ["shared"]


def test_a_benchmark_takes_a_run_that_a_study_trained_first(tmp_path: Path) -> None:
    stored(tmp_path, "first", study="burgers-forms", setting="smooth form")
    assert main(tmp_path) == []
    keep_outcomes(root_of(tmp_path), [result(identity="first")])
    assert main(tmp_path) == ["first"]


def test_suites_that_were_kept_before_they_named_their_study_are_read(tmp_path: Path) -> None:
    stored(tmp_path, "first", study="burgers-forms", setting="smooth form")
    note = tmp_path / "suites" / "my-own-quick" / "first.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps(["wider", "same"]))
    assert [run.setting for run in of_study(tmp_path, "my-own")] == ["same", "wider"]
    assert [run.setting for run in of_study(tmp_path, "burgers-forms")] == ["smooth form"]


def test_a_run_of_a_benchmark_counts_before_one_made_alone(tmp_path: Path) -> None:
    stored(tmp_path, "listed")
    stored(tmp_path, "alone", study="train", epochs=3, **LATER)
    assert main(tmp_path) == ["listed"]


def test_a_run_with_settings_of_its_own_is_no_seed_of_the_preset(tmp_path: Path) -> None:
    stored(tmp_path, "listed", setting="")
    stored(tmp_path, "alone", study="train", seed=1)
    changed = {"training": {"epochs": 300, "selection": "best_test", "batch_size": 4}}
    stored(tmp_path, "changed", study="train", seed=2, settings=changed)
    stored(tmp_path, "longer", study="train", seed=2, settings={"training": {"epochs": 500}})
    stored(tmp_path, "tuned", study="train", source="s")
    assert main(tmp_path) == ["listed", "alone"]
    assert {run.identity: run.setting for run in of_study(tmp_path, "train")} == {
        "tuned": "lsm (fine-tuned)",
        "changed": "lsm (epochs 300, selection best_test)",
        "longer": "lsm (epochs 500)",
    }


def test_a_cut_off_transfer_does_not_stop_the_report(tmp_path: Path) -> None:
    stored(tmp_path, "lsm", setting="")
    setting = {"setting": "lsm from scratch, 20% of the data", "fraction": 0.2}
    stored(tmp_path, "scratch", study="transfer", **setting)
    stored(tmp_path, "pipe", study="transfer", setting="", model="unet")
    page = write_report(root_of(tmp_path), "quick").page.read_bytes().decode()
    assert "<h2>Transfer from pipe to airfoil</h2>" in page
    assert "there is nothing to compare at 20% of the data" in page


def test_what_is_trained_for_others_to_start_from_is_not_in_their_study(tmp_path: Path) -> None:
    suite = {"study": "transfer"}
    stored(tmp_path, "pipe", **suite, setting="", source=None)
    stored(tmp_path, "tuned", **suite, setting="lsm fine-tuned", source="pipe")
    stored(tmp_path, "new", **suite, setting="lsm fine-tuned", source="another pipe", **LATER)
    assert [run.identity for run in of_study(tmp_path, "transfer")] == ["pipe", "new"]
    assert len(read_outcomes(root_of(tmp_path)).results) == 2


def test_lsm_is_shown_with_the_two_best_of_the_others() -> None:
    assert shown_models(["fno", "uno", "unet", "lsm"]) == ["lsm", "fno", "uno"]
    assert shown_models(["fno"]) == ["fno"]


def test_the_report_covers_what_there_is_and_names_what_is_missing(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    stored(tmp_path, "lsm", setting="")
    stored(tmp_path, "fno", model="fno", test={"rel_l2": 0.01}, setting="")
    for size in (128, 256):
        suite = {"study": "resolutions-burgers", "resolution": [size]}
        stored(tmp_path, f"at-{size}", setting=f"lsm at {size}", **suite)
    for size in (64, 128):
        keep_cost(root, cost(size))
    report = write_report(root, "quick")
    assert str(report.page).endswith("reports/benchmark-quick/index.html")
    page = report.page.read_bytes().decode()
    for title in ("Main results", "Burgers", "Resolutions of Burgers", "Efficiency"):
        assert f"<h2>{title}</h2>" in page
    assert "<h2>Transfer from pipe to airfoil</h2>" not in page
    assert "Transfer from pipe to airfoil: <code>lsm study transfer --preset quick</code>" in page
    assert "the test samples that runs keep are gone" in page
    assert "No picture of the solving process: the model of run lsm cannot be rebuilt" in page
    assert "| fno | 0.0100 (0.00332) | 1.0 | 2.0 |" in report.markdown.replace("**", "")
    assert "figures/" not in report.markdown
    kept = tmp_path / "reports" / "benchmark-quick"
    assert "![" in (kept / "report.md").read_text()
    assert (kept / "figures" / "1.svg").read_text().startswith("<svg")
    assert len(json.loads((kept / "results.json").read_text())) == 2


def test_presets_stand_apart_in_the_report_of_all_runs(tmp_path: Path) -> None:
    stored(tmp_path, "quick", setting="")
    stored(tmp_path, "paper", preset="paper", study="benchmark", setting="")
    page = write_report(root_of(tmp_path)).page.read_bytes().decode()
    assert "<h2>Main results, preset quick</h2>" in page
    assert "<h2>Main results, preset paper</h2>" in page


def test_every_preset_has_its_own_picture_of_error_against_time(tmp_path: Path) -> None:
    for preset in ("quick", "paper"):
        for model in ("lsm", "fno"):
            suite = {"preset": preset, "setting": ""}
            stored(tmp_path, f"{preset}-{model}", model=model, **suite)
    page = write_report(root_of(tmp_path)).page.read_bytes().decode()
    for preset in ("quick", "paper"):
        assert page.count(f"burgers, preset {preset}: test error against seconds") == 1


def test_a_preset_without_runs_is_said_with_those_that_have_some(tmp_path: Path) -> None:
    stored(tmp_path, "quick")
    with pytest.raises(BadInput, match="there are some of preset quick"):
        write_report(root_of(tmp_path), "paper")


def test_costs_that_are_measured_again_replace_the_old_ones(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    for one in (cost(64), cost(128), cost(64, step_seconds=9.0)):
        keep_cost(root, one)
    assert [(c.size, c.step_seconds) for c in stored_costs(root)] == [(64, 9.0), (128, 1.0)]


def test_the_report_of_official_data_has_no_other(tmp_path: Path) -> None:
    stored(tmp_path, "ours")
    stored(tmp_path, "theirs", model="fno", origin="official")
    root = root_of(tmp_path)
    report = write_report(root, "quick", official=True)
    assert str(report.page).endswith("reports/benchmark-quick-official/index.html")
    assert {row.model for row in report.rows} == {"fno"}
    assert {row.model for row in write_report(root, "quick").rows} == {"lsm", "fno"}


def test_a_benchmark_of_which_every_run_failed_has_a_report(tmp_path: Path) -> None:
    keep_outcomes(root_of(tmp_path), [failure("fno", "Diverged: the loss is nan")])
    report = write_report(root_of(tmp_path), "quick")
    assert "| burgers (256) | fno | – | failed |" in report.markdown
    assert "failed: Diverged: the loss is nan" in report.page.read_bytes().decode()


def test_runs_that_failed_are_in_later_reports_until_they_are_finished(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    stored(tmp_path, "lsm", setting="", fraction=1.0)
    study = {"study": "resolutions-burgers", "resolution": [256], "fraction": 1.0}
    stored(tmp_path, "at-256", setting="lsm at 256", **study)
    lost = failure("fno", "Diverged: the loss is nan")
    keep_outcomes(root, [lost])
    keep_outcomes(root, [replace(lost, study="resolutions-burgers", setting="fno at 256")])
    page = write_report(root, "quick").page.read_bytes().decode()
    assert page.count("failed: Diverged: the loss is nan") == 2
    assert len(of_study(tmp_path, "resolutions-burgers")) == 2
    stored(tmp_path, "fno", model="fno", setting="", fraction=1.0)
    stored(tmp_path, "fno-at-256", model="fno", setting="fno at 256", **study)
    page = write_report(root, "quick").page.read_bytes().decode()
    assert "Diverged" not in page


def test_a_study_of_which_all_runs_failed_does_not_break_the_report(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    stored(tmp_path, "lsm", setting="")
    keep_outcomes(root, [failure("fno", study="transfer", setting="fno fine-tuned")])
    assert "Transfer from pipe to airfoil: <code>" in (
        write_report(root, "quick").page.read_bytes().decode()
    )


def test_the_page_has_every_suite_with_its_hashes_and_the_newest_of_equal_runs(
    tmp_path: Path,
) -> None:
    stored(tmp_path, "old", test={"rel_l2": 0.9})
    stored(tmp_path, "new", finished="2026-11-16T13:00:00+00:00")
    stored(tmp_path, "long", study="train", epochs=500, preset="paper")
    page = tmp_path / "RESULTS.md"
    files = write_results_page(Location.parse(str(tmp_path)), page, note="On a busy machine.")
    text = page.read_text()
    assert "On a busy machine." in text
    assert "## Every model on every benchmark, preset quick" in text
    assert "## Long runs on burgers" in text
    assert "| 0.9 |" not in text
    assert f"| generated {'d' * 16} |" in text
    assert all(path.exists() for path in files)
    kept = json.loads((tmp_path / "tests/measurements/results/results.json").read_text())
    assert [run["identity"] for run in kept] == ["new", "long"]


def test_curves_are_of_all_seeds_not_of_the_last(tmp_path: Path) -> None:
    root, page = Location.parse(str(tmp_path)), tmp_path / "RESULTS.md"
    for seed in range(2):
        stored(tmp_path, f"seed-{seed}", seed=seed)
    (picture,) = [path for path in write_results_page(root, page) if path.suffix == ".svg"]
    assert "lsm, 2 seeds" in picture.read_text()
    assert "of several seeds the mean" in page.read_text()


def test_the_page_has_every_study_of_the_store_and_what_models_cost(tmp_path: Path) -> None:
    root, page = Location.parse(str(tmp_path)), tmp_path / "RESULTS.md"
    stored(tmp_path, "main", preset="paper")
    stored(tmp_path, "ablated", study="ablations", setting="without patches")
    stored(tmp_path, "mine", study="my-own", setting="wider")
    for number in range(20):
        setting = {"setting": f"lsm at {number}", "resolution": [number]}
        stored(tmp_path, f"at-{number}", study="resolutions-burgers", **setting)
    keep_cost(root, cost(64))
    files = write_results_page(root, page)
    text = page.read_text()
    for title in (
        "Every model on every benchmark, preset paper",
        "Ablations of LSM, preset quick",
        "Study my-own, preset quick",
        "Resolutions of Burgers, preset quick",
        "Cost of models",
    ):
        assert text.count(f"## {title}\n") == 1
    pictures = {path.stem for path in files if path.suffix == ".svg"}
    # Twenty curves cannot be told apart.
    assert pictures == {"benchmark-paper", "ablations-quick", "my-own-quick"}


def test_solvers_stand_on_the_board_once_a_task_and_in_no_table_of_models(tmp_path: Path) -> None:
    root, page = Location.parse(str(tmp_path)), tmp_path / "RESULTS.md"
    stored(tmp_path, "trained")
    for task in ("one", "another"):
        stored(tmp_path, task, model=SOLVER, protocol=task, setting="")
    outcomes = read_outcomes(root)
    (comparison,) = outcomes.comparisons()
    assert [run.identity for run in outcomes.of_benchmark(comparison)] == ["trained"]
    board = [run.identity for run in outcomes.of_board(comparison)]
    assert sorted(board) == ["another", "one", "trained"]
    write_results_page(root, page)
    assert SOLVER not in page.read_text()


def test_a_store_without_runs_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there are no results to report"):
        write_results_page(Location.parse(str(tmp_path)), tmp_path / "RESULTS.md")


def test_runs_of_studies_do_not_stand_for_the_benchmark(tmp_path: Path) -> None:
    stored(tmp_path, "whole", source=None, fraction=1.0, setting="")
    later = {"finished": "2026-11-17T12:00:00+00:00"}
    stored(tmp_path, "part", fraction=0.2, **later)
    stored(tmp_path, "tuned", source="whole", **later)
    stored(tmp_path, "ablated", setting="without patches", **later)
    stored(tmp_path, "other preset", preset="paper", **later)
    outcomes = read_outcomes(Location.parse(str(tmp_path)))
    found = outcomes.of_benchmark(Comparison("quick"))
    assert [run.identity for run in found] == ["whole"]
