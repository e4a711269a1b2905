import json
from pathlib import Path
from typing import Any

import pytest

from flows.errors import BadInput
from flows.steps.report import write_full_report, write_report
from flows.steps.report_pictures import shown_models
from flows.steps.stored_results import (
    benchmark_results,
    keep_costs,
    keep_failures,
    keep_suite,
    newest_results,
    stored_costs,
    study_results,
)
from lsm_core.benchmarks.burgers import Burgers
from storage.location import Location
from tests.flows.test_results_page import stored
from tests.lsm_core.reporting.test_efficiency import cost

LATER = {"finished": "2026-11-17T12:00:00+00:00"}


def root_of(folder: Path) -> Location:
    return Location.parse(str(folder))


def whole(folder: Path, identity: str, **changes: Any) -> None:
    """Keep a result with all that a report shows of it."""
    data = {"benchmark": "burgers", "parameters": Burgers(resolution=256).parameters()}
    stored(
        folder,
        identity,
        environment={"device": "cpu", "machine": "any", "torch": "2"},
        validation={"rel_l2": 0.03},
        settings={
            "data": {**data, "split_sizes": {"test": 4}},
            "training": {"batch_size": 10},
            "model": {"widths": [16, 32, 64, 128]},
        },
        **changes,
    )


def test_a_run_that_two_suites_share_is_in_both(tmp_path: Path) -> None:
    whole(tmp_path, "shared", setting="")
    whole(tmp_path, "own", suite="burgers-forms-quick", setting="smooth form")
    root = root_of(tmp_path)
    keep_suite(root, "burgers-forms-quick", [("shared", "released form"), ("shared", "same")])
    forms = study_results(root, "quick")["burgers-forms"]
    assert {run["setting"]: run["identity"] for run in forms} == {
        "smooth form": "own",
        "released form": "shared",
        "same": "shared",
    }
    assert [run["identity"] for run in benchmark_results(root, "quick")] == ["shared"]


def test_a_benchmark_takes_a_run_that_a_study_trained_first(tmp_path: Path) -> None:
    whole(tmp_path, "first", suite="burgers-forms-quick", setting="smooth form")
    root = root_of(tmp_path)
    assert benchmark_results(root, "quick") == []
    keep_suite(root, "benchmark-quick", [("first", "")])
    assert [run["identity"] for run in benchmark_results(root, "quick")] == ["first"]


def test_a_run_of_a_benchmark_counts_before_one_made_alone(tmp_path: Path) -> None:
    whole(tmp_path, "listed")
    whole(tmp_path, "alone", suite="train", epochs=3, **LATER)
    found = benchmark_results(root_of(tmp_path), "quick")
    assert [run["identity"] for run in found] == ["listed"]


def test_a_run_with_settings_of_its_own_is_no_seed_of_the_preset(tmp_path: Path) -> None:
    whole(tmp_path, "listed", setting="")
    whole(tmp_path, "alone", suite="train", seed=1)
    changed = {"training": {"epochs": 300, "selection": "best_test", "batch_size": 10}}
    stored(tmp_path, "changed", suite="train", seed=2, settings=changed)
    stored(tmp_path, "longer", suite="train", seed=2, settings={"training": {"epochs": 500}})
    whole(tmp_path, "tuned", suite="train", source="s")
    root = root_of(tmp_path)
    assert [run["identity"] for run in benchmark_results(root, "quick")] == ["listed", "alone"]
    found = study_results(root, "quick")["train"]
    assert {run["identity"]: run["setting"] for run in found} == {
        "tuned": "lsm (fine-tuned)",
        "changed": "lsm (epochs 300, selection best_test)",
        "longer": "lsm (epochs 500)",
    }


def test_a_cut_off_transfer_does_not_stop_the_report(tmp_path: Path) -> None:
    whole(tmp_path, "lsm", setting="")
    setting = {"setting": "lsm from scratch, 20% of the data", "fraction": 0.2}
    whole(tmp_path, "scratch", suite="transfer-quick", **setting)
    whole(tmp_path, "pipe", suite="transfer-quick", setting="", model="unet")
    page = write_full_report(root_of(tmp_path), "quick").page.read_bytes().decode()
    assert "<h2>Transfer from pipe to airfoil</h2>" in page
    assert "there is nothing to compare at 20% of the data" in page


def test_what_is_trained_for_others_to_start_from_is_not_in_their_study(tmp_path: Path) -> None:
    suite = {"suite": "transfer-quick"}
    whole(tmp_path, "pipe", **suite, setting="", source=None)
    whole(tmp_path, "tuned", **suite, setting="lsm fine-tuned", source="pipe")
    whole(tmp_path, "new", **suite, setting="lsm fine-tuned", source="another pipe", **LATER)
    found = study_results(root_of(tmp_path), "quick")["transfer"]
    assert [run["identity"] for run in found] == ["pipe", "new"]
    assert len(newest_results(root_of(tmp_path))) == 2


def test_lsm_is_shown_with_the_two_best_of_the_others() -> None:
    assert shown_models(["fno", "uno", "unet", "lsm"]) == ["lsm", "fno", "uno"]
    assert shown_models(["fno"]) == ["fno"]


def test_the_report_covers_what_there_is_and_names_what_is_missing(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    whole(tmp_path, "lsm", setting="")
    whole(tmp_path, "fno", model="fno", test={"rel_l2": 0.01}, setting="")
    for size in (128, 256):
        suite = {"suite": "resolutions-burgers-quick", "resolution": [size]}
        whole(tmp_path, f"at-{size}", setting=f"lsm at {size}", **suite)
    keep_costs(root, [{**cost(size), "device": "cpu"} for size in (64, 128)])
    report = write_full_report(root, "quick")
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
    whole(tmp_path, "quick", setting="")
    whole(tmp_path, "paper", preset="paper", suite="benchmark-paper", setting="")
    page = write_full_report(root_of(tmp_path)).page.read_bytes().decode()
    assert "<h2>Main results, preset quick</h2>" in page
    assert "<h2>Main results, preset paper</h2>" in page


def test_every_preset_has_its_own_picture_of_error_against_time(tmp_path: Path) -> None:
    for preset in ("quick", "paper"):
        for model in ("lsm", "fno"):
            suite = {"preset": preset, "suite": f"benchmark-{preset}", "setting": ""}
            whole(tmp_path, f"{preset}-{model}", model=model, **suite)
    page = write_full_report(root_of(tmp_path)).page.read_bytes().decode()
    for preset in ("quick", "paper"):
        assert page.count(f"burgers, preset {preset}: test error against seconds") == 1


def test_a_preset_without_runs_is_said_with_those_that_have_some(tmp_path: Path) -> None:
    whole(tmp_path, "quick")
    with pytest.raises(BadInput, match="there are some of preset quick"):
        write_full_report(root_of(tmp_path), "paper")


def test_costs_that_are_measured_again_replace_the_old_ones(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    keep_costs(root, [{**cost(64), "device": "cpu"}, {**cost(128), "device": "cpu"}])
    keep_costs(root, [{**cost(64), "device": "cpu", "step_seconds": 9.0}])
    assert [(c["size"], c["step_seconds"]) for c in stored_costs(root)] == [(64, 9.0), (128, 1.0)]


def test_a_benchmark_of_some_cells_keeps_the_others_in_its_report(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    whole(tmp_path, "before", setting="")
    whole(tmp_path, "now", model="fno", setting="")
    whole(tmp_path, "alone", model="unet", suite="train", setting="")
    now = next(run for run in benchmark_results(root, "quick") if run["model"] == "fno")
    report = write_report([now], root)
    assert {row.model for row in report.rows} == {"lsm", "fno"}


FAILED = {
    "identity": "lost",
    "preset": "quick",
    "benchmark": "burgers",
    "resolution": [256],
    "model": "fno",
    "seed": 0,
    "fraction": 1.0,
    "source": None,
    "error": "Diverged: the loss is nan",
}


def test_runs_that_failed_are_in_later_reports_until_they_are_finished(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    whole(tmp_path, "lsm", setting="", fraction=1.0)
    study = {"suite": "resolutions-burgers-quick", "resolution": [256], "fraction": 1.0}
    whole(tmp_path, "at-256", setting="lsm at 256", **study)
    keep_failures(root, "benchmark-quick", [FAILED])
    keep_failures(root, "resolutions-burgers-quick", [{**FAILED, "setting": "fno at 256"}])
    page = write_full_report(root, "quick").page.read_bytes().decode()
    assert page.count("failed: Diverged: the loss is nan") == 2
    assert len(study_results(root, "quick")["resolutions-burgers"]) == 2
    whole(tmp_path, "fno", model="fno", setting="", fraction=1.0)
    whole(tmp_path, "fno-at-256", model="fno", setting="fno at 256", **study)
    page = write_full_report(root, "quick").page.read_bytes().decode()
    assert "Diverged" not in page


def test_a_study_of_which_all_runs_failed_does_not_break_the_report(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    whole(tmp_path, "lsm", setting="")
    keep_failures(root, "transfer-quick", [{**FAILED, "setting": "fno fine-tuned"}])
    assert "Transfer from pipe to airfoil: <code>" in (
        write_full_report(root, "quick").page.read_bytes().decode()
    )
