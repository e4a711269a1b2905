import json
from pathlib import Path
from typing import Any

import pytest

from flows.errors import BadInput
from flows.steps.reports.results import Comparison, keep_cost, read_outcomes
from flows.steps.reports.results_page import write_results_page
from lsm_core.benchmarks.burgers import Burgers
from storage.location import Location
from tests.lsm_core.reporting.results import result
from tests.lsm_core.reporting.test_efficiency import cost


def stored(folder: Path, identity: str, **changes: Any) -> None:
    """Keep a result with all that a report shows of it."""
    data = {"benchmark": "burgers", "parameters": Burgers(resolution=256).parameters()}
    settings = {
        "data": {**data, "split_sizes": {"test": 4}},
        "training": {"batch_size": 10},
        "model": {"widths": [16, 32, 64, 128]},
    }
    place = folder / "checkpoints" / identity
    place.mkdir(parents=True)
    whole = result(identity=identity, **{"settings": settings, **changes})
    (place / "result.json").write_text(json.dumps(whole.to_plain()))


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
