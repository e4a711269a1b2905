"""Data, checkpoints, results and MLflow's files in an object store, by way of a real server."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.steps import datasets, training
from flows.steps.attachments import Attachments
from flows.steps.cells import is_finished
from flows.steps.training import Workplace, selected_weights
from storage.integrity import verify_dataset
from storage.location import Location
from tests.flows.test_training import Killed, comparable, experiment, train, workplace
from tests.storage.s3_servers import in_use, rclone_server


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Location]:
    with rclone_server(tmp_path / "buckets") as server, in_use(server.environment):
        yield server.new_root()


@pytest.mark.slow
def test_a_killed_training_in_an_object_store_ends_as_one_in_a_folder(
    root: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # journals of a store elsewhere lie in the working folder
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    folder = workplace(tmp_path, "folder")
    plan = experiment().data
    for index in datasets.begin(plan, root):
        datasets.generate_block(plan, root, index)
    dataset = datasets.finish(plan, root)
    verify_dataset(dataset.location)
    uri = f"sqlite:///{tmp_path}/remote.db"
    remote: Workplace = replace(folder, root=root, dataset=dataset.location, tracking_uri=uri)
    expected = train(folder)
    with pytest.raises(Killed):
        train(remote, kill_after=2)
    assert not is_finished(experiment(), remote)
    finished = train(remote)
    assert comparable(finished) == comparable(expected)
    weights = [selected_weights(place.checkpoints(experiment())) for place in (folder, remote)]
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
    again = remote.tracking().open_run(experiment().identity, "a run", {})
    again.add_file("pictures/curve.svg", b"<svg/>")
    again.finish()
    kept = files / "pictures" / "curve.svg"
    assert kept.read_bytes() == b"<svg/>"
