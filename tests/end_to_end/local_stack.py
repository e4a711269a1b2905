"""The stack as `make stack` starts it, on free ports and in a store of its own."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.engine.own_server import free_port

REPOSITORY = Path(__file__).parents[2]


def environment(store: Path | str, **more: str) -> dict[str, str]:
    """Return an environment without settings of ours, but for a store."""
    ours = ("LSM_", "PREFECT_", "MLFLOW_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return {**kept, "LSM_STORE": str(store), "DO_NOT_TRACK": "true", **more}


def run(
    arguments: list[str],
    settings: dict[str, str],
    seconds: float = 400,
    folder: Path = REPOSITORY,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m arguments` in a folder, as a user does, and return how it ended."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@contextmanager
def local_stack(
    store: Path | str, folder: Path = REPOSITORY, **more: str
) -> Iterator[dict[str, str]]:
    """Start server, pool, worker and MLflow; provide the environment; leave nothing behind."""
    settings = environment(
        store,
        PREFECT_API_URL=f"http://127.0.0.1:{free_port()}/api",
        LSM_MLFLOW_PORT=str(free_port()),
        **more,
    )
    try:
        up = run(["flows.cli", "stack", "up"], settings, 900, folder)
        assert up.returncode == 0, up.stderr
        yield settings
    finally:
        pids = [service["pid"] for service in services(settings, folder)]
        down = run(["flows.cli", "stack", "down"], settings, folder=folder)
        assert down.returncode == 0, down.stderr
        assert pids
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def services(settings: dict[str, str], folder: Path = REPOSITORY) -> list[dict[str, Any]]:
    """Return what the stack started, each with whether it runs."""
    status = run(["flows.cli", "stack", "status", "--json"], settings, folder=folder)
    return list(json.loads(status.stdout))


def submitted(
    name: str, parameters: dict[str, Any], settings: dict[str, str], folder: Path = REPOSITORY
) -> str:
    """Submit a run of a deployment and return its number."""
    command = ["prefect", "deployment", "run", name]
    for key, value in parameters.items():
        command += ["--param", f"{key}={json.dumps(value)}"]
    done = run(command, settings, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = set(re.findall(r"UUID: ([0-9a-f-]{36})", done.stdout))
    return str(found)


def ask(settings: dict[str, str], path: str, content: dict[str, Any] | None = None) -> Any:
    """Return the answer of the Prefect server: to a GET, or to a POST with some content."""
    request = urllib.request.Request(
        f"{settings['PREFECT_API_URL']}/{path}",
        data=None if content is None else json.dumps(content).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
