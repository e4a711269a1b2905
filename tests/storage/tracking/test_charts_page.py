import json

import pytest

from storage.location import Location
from storage.tracking.charts_page import SHARED_VIEW, suite_tag, view_address
from storage.tracking.echo import send
from storage.tracking.store import Tracking
from tests.storage.tracking.records import finished


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    folder = tmp_path_factory.mktemp("tracking")
    artifacts = Location.parse(str(folder / "artifacts"))
    return Tracking(f"sqlite:///{folder}/mlflow.db", "tests", artifacts)


def test_a_run_that_two_suites_use_is_found_by_the_page_of_each(tracking: Tracking) -> None:
    for name in ("shared", "other"):
        tags = {"suite": "first", suite_tag("first"): "yes"}
        send(tracking, finished(name, name=name, tags=tags))
    for _ in range(2):
        tags = {suite_tag("second"): "yes"}
        send(tracking, finished("shared", name="shared", tags=tags))
    found = {}
    for suite in ("first", "second"):
        key = view_address(tracking, suite).partition("viewStateShareKey=")[2]
        kept = tracking.client.get_experiment(tracking.experiment_id).tags[f"{SHARED_VIEW}{key}"]
        view = json.loads(kept)
        assert view["runsHiddenMode"] == "SHOW_ALL"
        assert view["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "surrogate"}]
        runs = tracking.client.search_runs([tracking.experiment_id], view["searchFilter"])
        found[suite] = sorted(run.info.run_name for run in runs)
        assert all(run.data.tags["suite"] == "first" for run in runs)
    assert found == {"first": ["other", "shared"], "second": ["shared"]}
