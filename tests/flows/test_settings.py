from pathlib import Path

import pytest

from flows.settings import Settings, current_settings, use_settings
from storage.errors import StoreUnavailable


@pytest.mark.parametrize(
    ("changes", "address"),
    [
        ({"LSM_MLFLOW_PORT": "5432"}, "http://127.0.0.1:5432"),
        ({"MLFLOW_TRACKING_URI": "https://me:secret@host/mlflow/"}, "https://host/mlflow"),
        (
            {"MLFLOW_TRACKING_URI": "http://mlflow:5000", "LSM_MLFLOW_PAGES": "https://here/"},
            "https://here",
        ),
    ],
)
def test_a_browser_is_sent_to_the_server_that_it_can_reach(
    changes: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "LSM_MLFLOW_PAGES", "LSM_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    assert Settings.from_environment().mlflow_address == address


def test_a_flow_uses_what_the_command_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSM_STORE", str(tmp_path / "of the command"))
    read = current_settings()
    monkeypatch.setenv("LSM_STORE", str(tmp_path / "changed"))
    with use_settings(read):
        assert current_settings() is read
    assert current_settings().root.local_path == tmp_path / "changed"


def test_without_a_command_the_environment_is_read_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LSM_STORE", str(tmp_path / "file"))
    with pytest.raises(StoreUnavailable, match="cannot write"):
        current_settings()
