"""The served champion follows the alias without a restart, and a rollback is one command."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from flows.engine.own_server import free_port
from flows.errors import BadInput
from flows.stack.services import stop_process
from flows.steps.models.champions import champion_history, promote, rollback
from flows.steps.models.packaging import trained_run
from flows.steps.models.registration import register_run
from flows.steps.models.serving import serving_command, serving_environment, write_following
from storage.location import Location
from tests.flows.steps.trained_runs import cell, random_samples, write_run

PATIENCE = 180.0
SMALL = {"resolution": 32, "solver_points": 64, "solver_steps": 20}


@pytest.fixture
def root(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path / "store"))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/mlflow.db"


def registered(root: Location, uri: str, n: int) -> list[str]:
    """Register models that differ, the first of them the champion; return their runs."""
    runs = [cell("burgers", "fno", seed, **SMALL) for seed in range(n)]
    for made in runs:
        write_run(made, root)
        register_run(made.identity, root, uri)
    return [made.identity for made in runs]


def test_a_rollback_is_told_with_its_reason_and_needs_somewhere_to_go(
    root: Location, uri: str
) -> None:
    registered(root, uri, 2)
    with pytest.raises(BadInput, match="pde-burgers/1 is the first champion"):
        rollback("burgers", "it is bad", root, uri)
    promote("pde-burgers/2", "looks better", root, uri)
    with pytest.raises(BadInput, match="say why"):
        rollback("burgers", " ", root, uri)
    assert rollback("pde-burgers", "it was not", root, uri).number == 1
    told = champion_history("burgers", root, uri)
    assert [(t.verdict, t.before, t.after, t.reason) for t in told] == [
        ("First", None, 1, "the first champion of smoke"),
        ("ByHand", 1, 2, "looks better"),
        ("RolledBack", 2, 1, "it was not"),
    ]
    with pytest.raises(BadInput, match="there are pde-burgers@champion-smoke"):
        rollback("burgers@champion-paper", "no such", root, uri)
    with pytest.raises(BadInput, match="no models are registered as pde-pipe"):
        champion_history("pipe", root, uri)


@pytest.mark.slow
def test_the_served_model_follows_the_champion_and_its_answer_names_the_version(
    root: Location, uri: str, tmp_path: Path
) -> None:
    runs, port = registered(root, uri, 2), free_port()
    folder = write_following("pde-burgers@champion", tmp_path / "model", root, uri, seconds=0.5)
    command = serving_command(folder, "127.0.0.1", port)
    server = psutil.Popen(command, env=dict(serving_environment(uri)))
    inputs = {"initial": random_samples(cell("burgers", **SMALL).data.benchmark, 9)["initial"]}
    expected = [trained_run(run, root).predictor(inputs)["final"] for run in runs]

    def answer() -> Any:
        body = json.dumps({"inputs": {name: v.tolist() for name, v in inputs.items()}}).encode()
        kind = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/invocations", body, kind)
        try:
            with urllib.request.urlopen(asked, timeout=30) as said:
                return json.loads(said.read())["predictions"]
        except (urllib.error.URLError, ConnectionError):
            return None

    def follows(number: int) -> None:
        said = wait_for(lambda: (a := answer()) and a["model"] == f"pde-burgers/{number}" and a)
        np.testing.assert_allclose(said["final"], expected[number - 1], rtol=1e-4, atol=1e-6)

    try:
        follows(1)
        promote("pde-burgers/2", "looks better", root, uri)
        follows(2)
        rollback("burgers", "it was not", root, uri)
        follows(1)
    finally:
        stop_process(server)


def wait_for(asked: Callable[[], Any]) -> Any:
    """Return what is asked for as soon as it is there."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := asked():
            return found
        time.sleep(0.5)
    raise TimeoutError(f"not there after {PATIENCE:.0f} s")
