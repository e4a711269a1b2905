"""What the server does by itself with runs that die, on a real server and without any process."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from flows.engine.own_server import free_port
from flows.stack.deployment import AUTOMATIONS, declare_automations, prefect_client
from flows.stack.services import start_service, stop_process, wait_until_healthy
from tests.flows.stack.test_doctor import REPOSITORY

SOON = 10
"""Seconds that the server waits here for what does not come."""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[httpx.Client]:
    port = free_port()
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path), "DO_NOT_TRACK": "true"}
    command = ("prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port))
    started = start_service(command, tmp_path / "log", environment, ends_with_parent=True)
    process = psutil.Process(started.pid)
    url = f"http://127.0.0.1:{port}/api"
    try:
        wait_until_healthy(f"{url}/health", process, tmp_path / "log")
        with prefect_client(url, {}) as client:
            declare_automations(client, impatient(tmp_path))
        with httpx.Client(base_url=url, timeout=60) as client:
            yield client
    finally:
        stop_process(process)
        started.wait()


def impatient(folder: Path) -> Path:
    """Write the automations with short times."""
    given = yaml.safe_load((REPOSITORY / AUTOMATIONS).read_text())
    for each in given["automations"]:
        if each["trigger"]["posture"] == "Proactive":
            each["trigger"]["within"] = SOON
    (folder / "automations.yaml").write_text(yaml.safe_dump(given))
    return folder / "automations.yaml"


def new_run(api: httpx.Client) -> str:
    """Make a run of a deployment that no worker takes."""
    flow = api.post("/flows/", json={"name": "nothing"}).json()["id"]
    body = {"name": "nothing", "flow_id": flow}
    deployment = api.post("/deployments/", json=body).json()["id"]
    return str(api.post(f"/deployments/{deployment}/create_flow_run", json={}).json()["id"])


def set_state(api: httpx.Client, run: str, *kinds: str) -> None:
    for kind in kinds:
        body = {"state": {"type": kind, "name": kind.title()}, "force": kind == "CRASHED"}
        answer = api.post(f"/flow_runs/{run}/set_state", json=body).json()
        assert answer["status"] == "ACCEPT", answer


def states(api: httpx.Client, run: str) -> list[str]:
    found: list[dict[str, Any]] = api.get("/flow_run_states/", params={"flow_run_id": run}).json()
    return [state["name"] for state in found]


def becomes(api: httpx.Client, run: str, name: str, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if states(api, run)[-1] == name:
            return True
        time.sleep(0.5)
    return False


@pytest.mark.slow
def test_a_run_that_dies_before_its_first_heartbeat_comes_back(api: httpx.Client) -> None:
    run = new_run(api)
    set_state(api, run, "PENDING", "RUNNING")
    assert becomes(api, run, "AwaitingRetry"), states(api, run)
    assert states(api, run)[-2] == "Crashed"


@pytest.mark.slow
def test_a_run_that_dies_before_its_start_comes_back_twice(api: httpx.Client) -> None:
    run = new_run(api)
    for _ in range(2):
        set_state(api, run, "PENDING", "CRASHED")
        assert becomes(api, run, "AwaitingRetry"), states(api, run)
    set_state(api, run, "PENDING", "CRASHED")
    assert not becomes(api, run, "AwaitingRetry", seconds=15.0), states(api, run)
