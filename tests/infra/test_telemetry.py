"""Neither Prefect nor MLflow reports anything from a command, unless its user wants it to."""

import os
import subprocess
import sys

import pytest

from flows.cli.main import TELEMETRY_OFF, main
from tests.infra.known_names import unknown_variables

ASKS = """
import sys
import flows.cli.main
assert not {"prefect", "mlflow"} & set(sys.modules), "imported before telemetry is off"
flows.cli.main.main(["list", "darcy"])
from mlflow.telemetry.utils import is_telemetry_disabled
from prefect._internal.analytics.enabled import is_telemetry_enabled
from prefect.settings import get_current_settings
print("off", is_telemetry_disabled(), is_telemetry_enabled())
print("server", get_current_settings().server.analytics_enabled)
"""


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TELEMETRY_OFF:
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)


def test_prefect_and_mlflow_find_their_telemetry_off_after_a_command() -> None:
    # MLflow is silent on a machine of CI anyway, and so is Prefect.
    public = {
        name: value for name, value in os.environ.items() if name not in ("CI", "GITHUB_ACTIONS")
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ASKS],
        env={**public, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.splitlines()[-2:] == ["off True False", "server False"], done.stderr


def test_whoever_wants_telemetry_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DO_NOT_TRACK", "false")
    assert main(["list", "darcy"]) == 0
    assert os.environ["DO_NOT_TRACK"] == "false"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_the_variables_are_those_that_prefect_and_mlflow_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert unknown_variables(TELEMETRY_OFF, (), monkeypatch) == set()
