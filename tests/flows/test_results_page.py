import json
from pathlib import Path

import pytest

from flows.errors import BadInput
from flows.steps.results_page import write_results_page
from flows.steps.stored_results import benchmark_results, keep_costs
from storage.location import Location
from tests.lsm_core.reporting.test_efficiency import cost
from tests.lsm_core.reporting.test_reporting import result


def stored(folder: Path, identity: str, **changes: object) -> None:
    place = folder / "checkpoints" / identity
    place.mkdir(parents=True)
    whole = {
        **result("lsm", 0.02),
        "identity": identity,
        "preset": "quick",
        "suite": "benchmark-quick",
        "history": [{"epoch": 1, "train": 0.5, "validation": 0.4}],
        "n_train": 10,
        "epochs": 1,
        "protocol": "p" * 16,
        "dataset": {"digest": "d" * 64},
        "code": "c" * 16,
        "finished": "2026-11-16T12:00:00+00:00",
        **changes,
    }
    (place / "result.json").write_text(json.dumps(whole))


def test_the_page_has_every_suite_with_its_hashes_and_the_newest_of_equal_runs(
    tmp_path: Path,
) -> None:
    stored(tmp_path, "old", test={"rel_l2": 0.9})
    stored(tmp_path, "new", finished="2026-11-16T13:00:00+00:00")
    stored(tmp_path, "long", suite="train", epochs=500, preset="paper")
    page = tmp_path / "RESULTS.md"
    files = write_results_page(Location.parse(str(tmp_path)), page, note="On a busy machine.")
    text = page.read_text()
    assert "On a busy machine." in text
    assert "## Every model on every benchmark, preset quick" in text
    assert "## Long runs on burgers" in text
    assert "0.90000" not in text
    assert f"`{'d' * 16}`" in text
    assert all(path.exists() for path in files)
    kept = json.loads((tmp_path / "lsm_core/reporting/measured/results.json").read_text())
    assert [run["identity"] for run in kept] == ["new", "long"]


def test_the_page_has_every_study_of_the_store_and_what_models_cost(tmp_path: Path) -> None:
    root, page = Location.parse(str(tmp_path)), tmp_path / "RESULTS.md"
    stored(tmp_path, "main", suite="benchmark-paper", preset="paper")
    stored(tmp_path, "ablated", suite="ablations-quick", setting="without patches")
    stored(tmp_path, "mine", suite="my-own-quick", setting="wider")
    for number in range(20):
        setting = {"setting": f"lsm at {number}", "resolution": [number]}
        stored(tmp_path, f"at-{number}", suite="resolutions-burgers-quick", **setting)
    keep_costs(root, [{**cost(64), "device": "cpu"}])
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
    found = benchmark_results(Location.parse(str(tmp_path)), "quick")
    assert [run["identity"] for run in found] == ["whole"]
