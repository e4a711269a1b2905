"""The same contract over a database and over a server that keeps files itself."""

from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from storage.errors import NoSuchModel, StoreUnavailable
from storage.model_registry import ModelRegistry, is_reference, registered_name
from tests.storage.mlflow_server import record_run, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('database')}/mlflow.db"


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


def test_versions_are_added_named_and_brought_back(uri: str, tmp_path: Path) -> None:
    registry, name = ModelRegistry(uri), registered_name("darcy")
    versions = []
    for identity in ("first", "second"):
        record_run(uri, tmp_path, identity)
        tags = {"identity": identity, "dataset": "1234", "test/rel_l2": "0.01"}
        versions.append(registry.add(model_folder(tmp_path, identity), name, tags))
    assert [v.number for v in versions] == [1, 2]
    assert versions[0].tags["dataset"] == "1234"
    assert registry.names() == ["lsm-darcy"]
    assert [v.number for v in registry.versions(name)] == [2, 1]

    registry.set_alias(name, "champion", 1)
    registry.set_alias(name, "challenger", 2)
    brought = registry.download("lsm-darcy@champion", tmp_path / "brought")
    assert (brought / "artifacts" / "weights").read_text() == "first"
    assert registry.find("lsm-darcy/2").aliases == ("challenger",)

    registry.set_alias(name, "champion", 2)
    assert registry.find("lsm-darcy@champion").number == 2
    assert registry.find("lsm-darcy/1").aliases == ()
    registry.remove_alias(name, "challenger")
    assert registry.with_alias(name, "challenger") is None

    changed = {"identity": "first", "test/rel_l2": "0.02"}
    again = registry.add(model_folder(tmp_path, "again"), name, changed)
    assert (again.number, again.tags["test/rel_l2"]) == (1, "0.02")
    assert len(registry.versions(name)) == 2


def test_what_is_not_there_is_said_with_what_is(database: str, tmp_path: Path) -> None:
    registry = ModelRegistry(database)
    with pytest.raises(NoSuchModel, match=r"no lsm-pipe@champion in the registry .* no version"):
        registry.find("lsm-pipe@champion")
    folder = model_folder(tmp_path, "one")
    with pytest.raises(NoSuchModel, match="has no run one"):
        registry.add(folder, "lsm-pipe", {"identity": "one"})
    record_run(database, tmp_path, "one")
    registry.add(folder, "lsm-pipe", {"identity": "one"})
    for missing in ("lsm-pipe@champion", "lsm-pipe/7"):
        with pytest.raises(NoSuchModel, match=f"no {missing} in the registry .* found lsm-pipe/1"):
            registry.find(missing)
    with pytest.raises(NoSuchModel, match="expected something like lsm-darcy@champion"):
        registry.find("pipe")
    with pytest.raises(ValueError, match="an alias is one of champion, challenger"):
        registry.set_alias("lsm-pipe", "best", 1)


def test_a_version_whose_upload_fails_is_not_there(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = ModelRegistry(database)
    record_run(database, tmp_path, "broken")

    def fails(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(mlflow.MlflowClient, "log_model_artifacts", fails)
    with pytest.raises(OSError, match="disk is full"):
        registry.add(tmp_path, "lsm-airfoil", {"identity": "broken"})
    assert registry.versions("lsm-airfoil") == []


def test_references_are_told_from_paths_and_identities() -> None:
    assert is_reference("lsm-navier_stokes@champion")
    assert is_reference("lsm-darcy/12")
    for other in ("lsm-darcy", "lsm-darcy/0", "0123456789abcdef", "models/lsm-darcy@champion"):
        assert not is_reference(other)


def test_a_registry_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"this is not a database, and never was one" * 50)
    with pytest.raises(StoreUnavailable, match="MLFLOW_TRACKING_URI"):
        ModelRegistry(f"sqlite:///{tmp_path}/mlflow.db").names()
