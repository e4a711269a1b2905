import json
import logging
from pathlib import Path

import pytest

from flows.steps.run_record import share_runs
from storage.charts_page import SHARED_VIEW, add_to_suite, charts_address, suite_tag
from storage.location import Location
from storage.run_log import Tracking


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    folder = tmp_path_factory.mktemp("tracking")
    artifacts = Location.parse(str(folder / "artifacts"))
    return Tracking(f"sqlite:///{folder}/mlflow.db", "tests", artifacts, folder / "journal")


def test_a_run_that_two_suites_use_is_found_by_the_page_of_each(tracking: Tracking) -> None:
    for name in ("shared", "other"):
        tags = {"suite": "first", suite_tag("first"): "yes"}
        tracking.open_run(name, name, tags).finish()
    for _ in range(2):
        add_to_suite(tracking, "second", ["shared"])
    found = {}
    for suite in ("first", "second"):
        key = charts_address(tracking, suite).partition("viewStateShareKey=")[2]
        kept = tracking.client.get_experiment(tracking.experiment_id).tags[f"{SHARED_VIEW}{key}"]
        view = json.loads(kept)
        assert view["runsHiddenMode"] == "SHOW_ALL"
        runs = tracking.client.search_runs([tracking.experiment_id], view["searchFilter"])
        found[suite] = sorted(run.info.run_name for run in runs)
        assert all(run.data.tags["suite"] == "first" for run in runs)
    assert found == {"first": ["other", "shared"], "second": ["shared"]}


def test_a_store_that_is_away_does_not_fail_a_suite(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = Tracking("http://127.0.0.1:9", "tests", Location.parse(str(tmp_path)), tmp_path)
    with caplog.at_level(logging.WARNING):
        share_runs(away, "second", [{"identity": "shared"}])
    assert "charts of second" in caplog.text
