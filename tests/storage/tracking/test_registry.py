"""The same contract over a database and over a server that keeps files itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
import pytest

from flows.engine.own_server import free_port
from storage.errors import NoSuchModel, StoreUnavailable
from storage.location import Location
from storage.tracking.model_state import Change, ModelVersion, is_reference
from storage.tracking.registry import ModelRegistry, Upload, Uploads, describe, registered_name
from tests.storage.tracking.mlflow_server import record_run, running_server


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('database')}/mlflow.db"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide a server of its own: which names a registry has is part of the contract."""
    with running_server(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(params=["database", "server"])
def uri(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def model_folder(folder: Path, content: str) -> Path:
    made = folder / content
    (made / "artifacts").mkdir(parents=True)
    (made / "MLmodel").write_text("flavors:\n  python_function: {}\n")
    (made / "artifacts" / "weights").write_text(content)
    return made


def uploads(uri: str, folder: Path) -> Uploads:
    """Return what provides a run and a model folder, named by it, for each version."""

    @contextmanager
    def made(version: ModelVersion) -> Iterator[Upload]:
        identity = version.tags["identity"]
        run_id = record_run(uri, folder, identity)
        made_in = model_folder(folder / str(version.number), identity)
        yield Upload(run_id=run_id, folder=made_in)

    return made


def opened(uri: str, folder: Path) -> ModelRegistry:
    return ModelRegistry(uri, Location.parse(str(folder / "store")))


def test_versions_are_added_named_and_brought_back(uri: str, tmp_path: Path) -> None:
    registry, name = opened(uri, tmp_path), registered_name("darcy")
    versions = []
    for identity in ("first", "second"):
        tags = {"identity": identity, "dataset": "1234", "test/rel_l2": "0.01", "model": "fno"}
        versions.append(registry.record.add(name, tags))
    assert registry.echo(name, uploads(uri, tmp_path)) == 3  # with the words of the name
    assert [v.number for v in versions] == [1, 2]
    assert versions[0].tags["dataset"] == "1234"
    assert registry.record.names() == ["pde-darcy"]
    assert [v.number for v in registry.state(name).newest_first()] == [2, 1]

    registry.note(name, Change(aliases={"champion": 1}))
    registry.note(name, Change(aliases={"challenger": 2}))
    (tmp_path / "brought").mkdir()
    brought = registry.download(registry.find("pde-darcy@champion"), tmp_path / "brought")
    assert (brought / "artifacts" / "weights").read_text() == "first"
    assert registry.find("pde-darcy/2").aliases == ("challenger",)

    registry.note(name, Change(aliases={"champion": 2}))
    assert registry.find("pde-darcy@champion").number == 2
    assert registry.find("pde-darcy/1").aliases == ("previous",)
    registry.note(name, Change(aliases={"challenger": None}))
    assert registry.state(name).with_alias("challenger") is None

    told = registry.client.get_model_version(name, "1")
    assert told.description == "FNO, 1 % on its test samples"
    assert dict(told.tags) == {"identity": "first", "model": "fno"}
    changed = {"identity": "first", "test/rel_l2": "0.02"}
    again = registry.record.add(name, changed)
    assert (again.number, again.tags["test/rel_l2"]) == (1, "0.02")
    assert len(registry.state(name).newest_first()) == 2
    assert [registry.echo(name, uploads(uri, tmp_path)) for _ in range(2)] == [1, 0]


def test_a_retired_version_leaves_no_model_and_no_files(uri: str, tmp_path: Path) -> None:
    registry, name = opened(uri, tmp_path), registered_name("plasticity")
    for identity in ("old", "young"):
        registry.record.add(name, {"identity": identity})
    registry.echo(name, uploads(uri, tmp_path))
    known = {n: registry.client.get_model_version(name, str(n)) for n in (1, 2)}
    registry.note(name, Change(retired=(1,), reason="to make room"))
    experiment = registry.client.get_experiment_by_name("tests")
    assert experiment is not None
    left = {
        m.source_run_id for m in registry.client.search_logged_models([experiment.experiment_id])
    }
    assert [known[n].run_id in left for n in (1, 2)] == [False, True]
    files = [
        mlflow.artifacts.list_artifacts(artifact_uri=known[n].source, tracking_uri=uri)
        for n in (1, 2)
    ]
    assert [bool(found) for found in files] == [False, True]
    found = registry.client.search_model_versions(f"name = '{name}'")
    assert [int(each.version) for each in found] == [2]


def test_a_change_holds_while_mlflow_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    registry, away = opened(uri, tmp_path), opened(f"http://127.0.0.1:{free_port()}", tmp_path)
    registry.record.add("pde-darcy", {"identity": "first"})
    registry.echo("pde-darcy", uploads(uri, tmp_path))
    away.note("pde-darcy", Change(aliases={"champion": 1}, reason="by hand"))
    assert "`lsm runs sync` sends it from the store" in caplog.text
    assert registry.find("pde-darcy@champion").number == 1
    assert [registry.echo("pde-darcy") for _ in range(2)] == [2, 0]  # the alias, and its words


def test_what_is_not_there_is_said_with_what_is(database: str, tmp_path: Path) -> None:
    registry = opened(database, tmp_path)
    with pytest.raises(NoSuchModel, match=r"no pde-pipe@champion in the registry .* no version"):
        registry.find("pde-pipe@champion")
    registry.record.add("pde-pipe", {"identity": "one"})
    for missing in ("pde-pipe@champion", "pde-pipe/7"):
        with pytest.raises(NoSuchModel, match=f"no {missing} in the registry .* found pde-pipe/1"):
            registry.find(missing)
    registry.record.add("pde-mesh-2_b", {"identity": "own"})
    assert registry.find("pde-mesh-2_b/1").tags["identity"] == "own"
    with pytest.raises(NoSuchModel, match="expected something like pde-darcy@champion"):
        registry.find("pipe")
    with pytest.raises(ValueError, match="an alias is one of champion, challenger"):
        registry.note("pde-pipe", Change(aliases={"best": 1}))


def test_a_version_whose_upload_fails_comes_with_the_next_echo(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = opened(database, tmp_path)
    registry.record.add("pde-airfoil", {"identity": "broken"})

    def fails(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(mlflow.MlflowClient, "log_model_artifacts", fails)
        with pytest.raises(OSError, match="disk is full"):
            registry.echo("pde-airfoil", uploads(database, tmp_path / "first"))
    assert registry.client.search_model_versions("name = 'pde-airfoil'") == []
    assert registry.echo("pde-airfoil", uploads(database, tmp_path / "second")) == 2
    (made,) = registry.client.search_model_versions("name = 'pde-airfoil'")
    assert int(made.version) == 1


def test_what_only_mlflow_knows_is_taken_in_once(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    earlier = opened(uri, tmp_path / "earlier")
    for identity in ("first", "second"):
        earlier.record.add("pde-darcy", {"identity": identity})
    earlier.echo("pde-darcy", uploads(uri, tmp_path))
    earlier.note("pde-darcy", Change(aliases={"champion": 2}))
    earlier.client.set_registered_model_tag("pde-darcy", "locked", "these")
    registry = opened(uri, tmp_path / "now")
    assert registry.find("pde-darcy@champion").number == 2
    assert registry.state("pde-darcy").tags == {"locked": "these"}
    (change,) = registry.record.history("pde-darcy")
    assert change.reason == "taken in from MLflow"
    assert registry.echo("pde-darcy", uploads(uri, tmp_path)) == 0
    earlier.client.delete_registered_model("pde-darcy")
    assert len(opened(uri, tmp_path / "now").state("pde-darcy").newest_first()) == 2


def test_a_registry_with_versions_of_others_is_not_mixed_with_ours(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    ours, theirs = opened(uri, tmp_path / "ours"), opened(uri, tmp_path / "theirs")
    for registry, identity in ((ours, "mine"), (theirs, "yours")):
        assert registry.record.names() == []
        registry.record.add("pde-darcy", {"identity": identity})
    ours.echo("pde-darcy", uploads(uri, tmp_path))
    with pytest.raises(StoreUnavailable, match="has other versions of pde-darcy than the store"):
        theirs.echo("pde-darcy", uploads(uri, tmp_path))
    assert ours.echo("pde-darcy", uploads(uri, tmp_path)) == 0


def test_references_are_told_from_paths_and_identities() -> None:
    assert is_reference("pde-navier_stokes@champion")
    assert is_reference("pde-darcy/12")
    assert is_reference("pde-darcy@champion-paper-official")
    for other in ("pde-darcy", "pde-darcy/0", "0123456789abcdef", "models/pde-darcy@champion"):
        assert not is_reference(other)


def test_a_registry_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"this is not a database, and never was one" * 50)
    with pytest.raises(StoreUnavailable, match="MLFLOW_TRACKING_URI"):
        opened(f"sqlite:///{tmp_path}/mlflow.db", tmp_path).record.names()


def test_a_version_says_in_words_what_it_is() -> None:
    tags = {"model": "lsm_ours", "preset": "quick", "test/rel_l2": "0.03592", "n_test": "50"}
    assert describe(tags) == "LSM (ours), quick, 3.59 % on 50 test samples"
    official = {**tags, "model": "fno", "origin": "official"}
    assert describe(official) == "FNO, quick, 3.59 % on 50 test samples, official data"
    assert describe({"identity": "of another tool"}) == ""
