"""`lsm doctor` on installations that are well, and on some that are not."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from flows.cli.main import main
from flows.engine.own_server import free_port
from flows.settings import Settings
from flows.stack.deployment import (
    AUTOMATIONS,
    declare_automations,
    declared_automations,
    prefect_client,
)
from flows.stack.doctor import check_automations, check_deployments
from flows.stack.services import (
    Service,
    keep_services,
    start_service,
    stop_process,
    wait_until_healthy,
)
from storage.location import Location
from storage.runs.processes import birth_of
from tests.storage.datasets.small import small_schema, write_whole

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("LSM_", "MLFLOW_", "PREFECT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LSM_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
    monkeypatch.setenv("LSM_MLFLOW_PORT", str(free_port()))
    return tmp_path / "store"


def examined(
    capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code and the findings by subject."""
    try:
        code = main(["doctor", "--json", *options])
    except SystemExit as end:
        code = int(str(end.code))
    return code, {each["subject"]: each for each in json.loads(capsys.readouterr().out)}


def test_a_new_installation_has_no_problem(
    own_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = examined(capsys)
    problems = [each for each in found.values() if each["state"] == "problem"]
    assert (code, problems) == (0, [])
    assert found["store"]["state"] == found["stack"]["state"] == "ok"
    assert "lsm stack up" in found["prefect"]["text"]
    assert list(own_store.iterdir()) == []
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(found)
    assert all(line.split()[0] in ("ok", "warning") for line in lines)


def test_what_is_wrong_is_said_with_what_to_do(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LSM_DEVICE", "cuda")
    monkeypatch.setenv("LSM_DASK", f"tcp://127.0.0.1:{free_port()}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://name:secret@127.0.0.1:{free_port()}")
    own_store.mkdir()
    dead = Service("prefect-worker", 2**22 - 3, 0.0, "http://x:1", "")
    keep_services(Settings.from_environment(), [dead])
    write_whole(Location.parse(str(own_store)) / "datasets" / "small" / "a.zarr", small_schema())
    chunk = own_store / "datasets" / "small" / "a.zarr" / "after" / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-2] + b"??")
    code, found = examined(capsys, "--data")
    said = {subject: f"{each['state']}: {each['text']}" for subject, each in found.items()}
    assert code == 1
    assert said["device"].startswith("problem: LSM_DEVICE is cuda")
    assert "check LSM_DASK" in said["dask"]
    assert said["mlflow"].startswith("problem: http://127.0.0.1")
    assert "secret" not in json.dumps(found)
    assert "prefect-worker is down; `lsm stack up`" in said["stack"]
    assert said["datasets"].startswith("problem: ")
    assert "a.zarr cannot be read" in said["datasets"]


def test_a_store_that_cannot_be_written_is_a_problem(
    own_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_store.write_text("not a folder")
    code, found = examined(capsys)
    assert code == 1
    assert found["store"]["state"] == "problem"
    assert "LSM_STORE" in found["store"]["text"]


def test_a_version_out_of_bounds_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flows.stack import doctor

    found = {"sqlalchemy": "2.1.3"}
    installed = doctor._installed
    monkeypatch.setattr(doctor, "_installed", lambda name: found.get(name) or installed(name))
    state, text = doctor.check_packages()
    assert state == "problem"
    assert "sqlalchemy 2.1.3 is not <2.1,>=2.0" in text


def test_a_number_that_another_process_has_now_is_no_service(
    own_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    born = birth_of(os.getpid())
    own_store.mkdir()
    for noted, text in (born, "1 services run"), (0.0, "mlflow-server is down"):
        service = Service("mlflow-server", os.getpid(), noted or 0.0, "http://x:1", "")
        keep_services(Settings.from_environment(), [service])
        _, found = examined(capsys)
        assert found["stack"]["text"].startswith(text)


class Answers:
    """A client of a server that has one deployment and one automation."""

    def read_deployments(self, **_: Any) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="one")]

    def read_automations(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="one", enabled=True)]


ONE = """
automations:
  - name: one
    trigger: {type: event, posture: Reactive, threshold: 1, expect: [x]}
    actions: [{type: do-nothing}]
"""


def test_what_to_compare_with_is_looked_for_where_it_is_deployed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = Answers()
    monkeypatch.chdir(tmp_path)
    checks = (check_deployments, check_automations)
    for check, path in zip(checks, ("prefect.yaml", "infra/automations.yaml"), strict=True):
        state, text = check(client)
        assert state == "problem"
        assert f"there is no {path} in {tmp_path}" in text
        assert "in the project's folder" in text
    (tmp_path / "infra").mkdir()
    (tmp_path / "prefect.yaml").write_text("deployments: [{name: one}]")
    (tmp_path / "infra" / "automations.yaml").write_text(ONE)
    for check in checks:
        state, text = check(client)
        assert (state, text[:5]) == ("ok", "all 1")


def test_pins_that_are_not_there_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.stack import doctor

    monkeypatch.setattr(doctor, "PINS", tmp_path / "constraints.txt")
    assert "no constraints.txt to compare with" in doctor.check_packages()[1]


def test_help_answers_without_heavy_imports() -> None:
    script = "import sys; from flows.cli.main import main\ntry: main(['doctor', '--help'])\n"
    script += "except SystemExit: pass\nprint({'torch', 'prefect', 'mlflow'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("set()\n")


@pytest.fixture
def prefect_server(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    port = free_port()
    environment = {**os.environ, "PREFECT_HOME": str(own_store), "DO_NOT_TRACK": "true"}
    environment |= {"PREFECT_SERVER_API_AUTH_STRING": "admin:password"}
    command = ("prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port))
    started = start_service(command, own_store / "log", environment, ends_with_parent=True)
    process = psutil.Process(started.pid)
    url = f"http://127.0.0.1:{port}/api"
    try:
        wait_until_healthy(f"{url}/health", process, own_store / "log")
        monkeypatch.setenv("PREFECT_API_URL", url)
        yield url
    finally:
        stop_process(process)
        started.wait()


@pytest.mark.slow
def test_a_server_without_pool_and_deployments_is_a_problem(
    prefect_server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = examined(capsys)
    assert (code, found["prefect"]["state"]) == (1, "problem")
    assert "set PREFECT_API_AUTH_STRING" in found["prefect"]["text"]
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "admin:password")
    code, found = examined(capsys)
    assert (code, found["prefect"]["state"]) == (1, "ok")
    assert "no pool lsm-control" in found["worker"]["text"]
    assert "full-benchmark" in found["deployments"]["text"]
    assert found["automations"]["state"] == "problem"
    missing = found["automations"]["text"].partition(" missing; ")[0].split(", ")
    assert missing == [each.name for each in declared_automations(REPOSITORY / AUTOMATIONS)]
    assert "`lsm stack deploy`" in found["automations"]["text"]
    client = prefect_client(prefect_server, os.environ)
    with client:
        declare_automations(client, REPOSITORY / AUTOMATIONS)
        # One that is written again forgets the events it has seen.
        monkeypatch.setattr(client, "update_automation", None)
        declare_automations(client, REPOSITORY / AUTOMATIONS)
    _, found = examined(capsys)
    said = f"all {len(missing)} of infra/automations.yaml are declared"
    assert found["automations"]["text"].startswith(said)
    switch_off(prefect_server, "lsm crashed runs come back")
    _, found = examined(capsys)
    assert found["automations"]["state"] == "warning"
    assert "lsm crashed runs come back switched off" in found["automations"]["text"]


def switch_off(api: str, name: str) -> None:
    with prefect_client(api, os.environ) as client:
        (automation,) = client.read_automations_by_name(name)
        client.pause_automation(automation.id)
        declare_automations(client, REPOSITORY / AUTOMATIONS)  # which leaves it switched off
