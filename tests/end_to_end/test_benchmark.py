"""The two ways in: the command line without any server, and a deployment on a real one.

Everything runs as a user runs it: processes, sockets and files, nothing replaced.
"""

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from flows.stack.services import is_healthy
from tests.end_to_end.local_stack import ask, environment, local_stack, run, services


def finished_runs(tracking_uri: str) -> list[Any]:
    client = mlflow.MlflowClient(tracking_uri)
    experiment = client.get_experiment_by_name("pde-burgers")
    assert experiment is not None
    return client.search_runs([experiment.experiment_id], "attributes.status = 'FINISHED'")


def test_the_command_line_ends_with_a_compared_result_and_then_reuses_it(tmp_path: Path) -> None:
    settings = environment(tmp_path, PREFECT_API_URL="http://127.0.0.1:9/api")
    command = ["flows.cli", "benchmark", "--preset", "smoke", "--benchmarks", "burgers"]
    first = run([*command, "--models", "lsm", "fno"], settings)
    assert first.returncode == 0, first.stderr
    rows = [line.split() for line in first.stdout.splitlines() if line.startswith("burgers")]
    assert {row[2] for row in rows} == {"lsm", "fno"}
    assert "index.html" in first.stdout
    assert "mlflow" in first.stdout
    runs = finished_runs(f"sqlite:///{tmp_path}/mlflow.db")
    assert {run.data.tags["model"] for run in runs} == {"lsm", "fno"}

    server_log = tmp_path / "logs" / "prefect-server.log"
    said = server_log.stat().st_size
    again = run([*command, "--models", "lsm", "fno", "--json"], settings)
    assert again.returncode == 0, again.stderr
    assert server_log.stat().st_size == said, "a server was started though nothing was to do"
    outcome = json.loads(again.stdout)
    errors = {row[2]: float(row[4]) for row in rows}
    for result in outcome["results"]:
        # The table has four digits.
        assert result["test"]["rel_l2"] == pytest.approx(errors[result["model"]], rel=5e-4)
    assert len(finished_runs(f"sqlite:///{tmp_path}/mlflow.db")) == 2
    registry = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    versions = registry.search_model_versions("name = 'pde-burgers'")
    assert {version.tags["model"] for version in versions} == {"lsm", "fno"}
    assert len(versions) == 2
    assert registry.get_model_version_by_alias("pde-burgers", "champion")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with local_stack(tmp_path_factory.mktemp("stack")) as settings:
        yield settings


COMPARISONS = pytest.mark.parametrize(
    ("models", "seed"),
    [
        pytest.param(["lsm"], 0, id="one-cell"),
        pytest.param(["lsm", "fno"], 1, id="two-cells", marks=pytest.mark.slow),
    ],
)


@COMPARISONS
def test_the_deployment_runs_and_its_runs_are_in_mlflow(
    stack: dict[str, str], models: list[str], seed: int
) -> None:
    command = ["prefect", "deployment", "run", "lsm/full-benchmark", "--watch"]
    smoke = ["--watch-timeout", "800", "--param", "preset=smoke"]
    narrow = ["--param", 'benchmarks=["burgers"]', "--param", f"models={json.dumps(models)}"]
    pool = ["--param", "cells=pool", "--param", f"seeds=[{seed}]"]
    name = ["--flow-run-name", f"a name of its own {seed}"]
    done = run([*command, *smoke, *narrow, *pool, *name], stack, seconds=850)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = finished_runs(f"http://127.0.0.1:{stack['LSM_MLFLOW_PORT']}")
    assert {run.data.tags["model"] for run in runs} == set(models)
    assert {run.data.tags["suite"] for run in runs} == {"benchmark-smoke"}


@COMPARISONS
def test_its_page_shows_data_cells_and_report(
    stack: dict[str, str], models: list[str], seed: int
) -> None:
    """After the test above: every cell is a run of its own that ended well, after its data."""
    ended = {"state": {"type": {"any_": ["COMPLETED"]}}}
    found = ask(stack, "flow_runs/filter", {"flow_runs": ended})
    by_name = {each["name"]: each for each in found if each["name"].endswith(f" {seed}")}
    own = f"a name of its own {seed}"
    assert set(by_name) == {own, *(f"burgers {model} seed {seed}" for model in models)}
    parent = by_name.pop(own)["id"]
    graph = ask(stack, f"flow_runs/{parent}/graph-v2")
    nodes = {node["label"]: node for _, node in graph["nodes"]}
    cells = {f"cell / {name}" for name in by_name}
    assert set(nodes) == {"data of burgers", "report benchmark-smoke", *cells}
    for name in cells:
        before = {link["id"] for link in nodes[name]["parents"]}
        assert before == {nodes["data of burgers"]["id"]}
    kinds = {each["type"] for each in graph["artifacts"]}
    assert kinds == {"table", "markdown", "progress"}  # links are Markdown to Prefect


def test_a_wrong_parameter_is_rejected_at_submission(stack: dict[str, str]) -> None:
    command = ["prefect", "deployment", "run", "lsm/full-benchmark"]
    done = run([*command, "--param", "preset=enormous"], stack)
    assert done.returncode != 0
    assert "enormous" in done.stdout + done.stderr


def test_a_page_of_somebody_else_cannot_speak_with_the_server(stack: dict[str, str]) -> None:
    answers = {}
    for origin in ("https://example.org", "http://127.0.0.1"):
        request = urllib.request.Request(
            f"{stack['PREFECT_API_URL']}/health", headers={"Origin": origin}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            answers[origin] = answer.headers.get("Access-Control-Allow-Origin")
    assert answers == {"https://example.org": None, "http://127.0.0.1": "http://127.0.0.1"}


def test_what_is_recorded_through_mlflow_lies_where_workers_put_it(stack: dict[str, str]) -> None:
    """Whoever begins an experiment: workers speak with the database, others with the server."""
    client = mlflow.MlflowClient(f"http://127.0.0.1:{stack['LSM_MLFLOW_PORT']}")
    number = client.create_experiment("of somebody else")
    folder = Path(stack["LSM_STORE"]).resolve() / "artifacts" / number
    assert client.get_experiment(number).artifact_location == folder.as_uri()


def test_a_schedule_gets_scheduled_runs(stack: dict[str, str]) -> None:
    create = ["prefect", "deployment", "schedule", "create", "prepare/prepare-datasets"]
    done = run([*create, "--cron", "0 3 * * *", "--timezone", "UTC"], stack)
    assert done.returncode == 0, done.stdout + done.stderr
    for _ in range(240):
        named = {"deployments": {"name": {"any_": ["prepare-datasets"]}}}
        scheduled = ask(stack, "flow_runs/filter", named)
        if scheduled:
            break
        time.sleep(0.5)
    assert scheduled
    assert {each["state"]["type"] for each in scheduled} == {"SCHEDULED"}


def test_starting_the_stack_twice_changes_nothing(stack: dict[str, str]) -> None:
    before, watching = services(stack), triggers(stack)
    again = run(["flows.cli", "stack", "up"], stack)
    assert again.returncode == 0, again.stderr
    assert services(stack) == before
    assert triggers(stack) == watching
    assert all(service["runs"] for service in before)
    names = {service["name"] for service in before}
    cell_workers = {name for name in names if name.startswith("prefect-worker-")}
    assert cell_workers
    assert names - cell_workers == {
        "prefect-server",
        "prefect-worker",
        "mlflow-server",
        "supervisor",
    }


def triggers(settings: dict[str, str]) -> dict[str, str]:
    """Return what our automations remember events by; a new one has seen none."""
    found = ask(settings, "automations/filter", {})
    return {each["name"]: each["trigger"]["id"] for each in found if each["name"].startswith("lsm")}


@pytest.mark.slow
def test_killed_components_come_back(stack: dict[str, str]) -> None:
    before = {each["name"]: each for each in services(stack) if each["name"] != "supervisor"}
    for service in before.values():
        os.kill(service["pid"], signal.SIGKILL)
    for _ in range(120):
        after = {each["name"]: each for each in services(stack)}
        is_new = [after[name]["pid"] != before[name]["pid"] for name in before]
        answers = [is_healthy(each["health"]) for each in after.values() if each["health"]]
        if all(is_new) and all(answers):
            break
        time.sleep(1)
    assert all(is_new)
    assert answers == [True, True]
    assert all(service["runs"] for service in after.values())
