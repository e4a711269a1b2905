"""Reports in a real tracking store: one run each, replaced in place, apart from trainings."""

import re
from pathlib import Path

import pytest

from storage.errors import StoreUnavailable
from storage.location import Location
from storage.tracking.echo import send
from storage.tracking.report_page import EXPERIMENT, report_address, send_report
from storage.tracking.store import Tracking
from tests.storage.tracking.records import BEGAN, finished


@pytest.fixture(scope="module", params=["database", "server"])
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "server":
        return str(request.getfixturevalue("mlflow_server"))
    return f"sqlite:///{tmp_path_factory.mktemp('database')}/mlflow.db"


def store(uri: str, folder: Path, experiment: str = EXPERIMENT) -> Tracking:
    return Tracking(uri, experiment, Location.parse(str(folder / "artifacts")))


def test_a_later_report_takes_the_place_of_the_one_before(uri: str, tmp_path: Path) -> None:
    send(store(uri, tmp_path, "benchmark"), finished("a training", name="a training"))
    tracking = store(uri, tmp_path)
    addresses = [
        kept(store(uri, tmp_path), name, text)
        for name, text in (("quick", "old"), ("quick", "new"), ("all", "other"))
    ]
    assert addresses[0] == addresses[1] != addresses[2]
    found = re.match(r"#/experiments/(\d+)/runs/([0-9a-f]{32})/artifacts/index.html", addresses[0])
    assert found
    assert found[1] == tracking.experiment_id
    for name, text in (("index.html", "<p>new</p>"), ("report.md", "new")):
        copy = tracking.client.download_artifacts(found[2], name, str(tmp_path))
        assert Path(copy).read_text() == text
    runs = tracking.client.search_runs([tracking.experiment_id])
    assert {run.info.run_name: run.info.status for run in runs} == {
        "report-quick": "FINISHED",
        "report-all": "FINISHED",
    }
    trainings = store(uri, tmp_path, "benchmark")
    (training,) = trainings.client.search_runs([trainings.experiment_id])
    assert training.info.run_name == "a training"


def kept(tracking: Tracking, name: str, text: str) -> str:
    sent = send_report(tracking, name, f"<p>{text}</p>".encode(), text.encode(), BEGAN)
    return report_address(tracking, sent.run_id)


def test_the_same_report_is_not_sent_again(uri: str, tmp_path: Path) -> None:
    sent = [send_report(store(uri, tmp_path), "same", b"<p>", b"text", BEGAN) for _ in range(2)]
    assert [each.n_files for each in sent] == [2, 0]
    assert not sent[1].anything


def test_a_store_that_is_away_is_said_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        kept(store("http://me:secret@127.0.0.1:9", tmp_path), "quick", "")
    assert "secret" not in str(caught.value)
