"""Data, checkpoints, results and MLflow's files in an object store, by way of a real server."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.steps.reports.attachments import Attachments
from flows.steps.training import run as training
from flows.steps.training.workplace import Workplace, selected_weights
from storage.datasets.reader import verify_dataset
from storage.location import Location
from tests.flows.steps.data.generation import generated
from tests.flows.steps.training.test_run import Killed, comparable, experiment, train, workplace
from tests.storage.s3_servers import in_use, rclone_server


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Location]:
    with rclone_server(tmp_path / "buckets") as server, in_use(server.environment):
        yield server.new_root()


@pytest.mark.slow
def test_a_killed_training_in_an_object_store_ends_as_one_in_a_folder(
    root: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    folder = workplace(tmp_path, "folder")
    plan = experiment().data
    dataset = generated(plan, root)
    verify_dataset(dataset.location)
    uri = f"sqlite:///{tmp_path}/remote.db"
    remote: Workplace = replace(folder, root=root, dataset=dataset.location, tracking_uri=uri)
    expected = train(folder)
    with pytest.raises(Killed):
        train(remote, kill_after=2)
    assert remote.checkpoints(experiment().identity).result() is None
    finished = train(remote)
    assert comparable(finished) == comparable(expected)
    weights = [
        selected_weights(place.checkpoints(experiment().identity)) for place in (folder, remote)
    ]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
    client = remote.tracking().client
    (run,) = client.search_runs(["1"])
    assert run.info.status == "FINISHED"
    assert run.info.artifact_uri.startswith("s3://")
    for _ in range(2):
        attachments = Attachments(root, remote.tracking())
        attachments.add(finished)
        assert attachments.missed == []
    files = Location(run.info.artifact_uri)
    assert sorted(files.names()) == ["result.json", "sample.svg"]
    assert (files / "sample.svg").read_bytes().startswith(b"<svg")
