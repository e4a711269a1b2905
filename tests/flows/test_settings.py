import pytest

from flows.settings import Settings


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
