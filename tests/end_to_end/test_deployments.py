"""Every deployment of prefect.yaml, from a clean state, as an operator runs it.

Server, worker and MLflow are those of `lsm stack up`; nothing is replaced.
"""

import json
import os
import re
import subprocess
import time
import urllib.error
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import mlflow
import numpy as np
import pytest
import yaml

from flows.steps.training.cells import benchmark_cells
from lsm_core.experiments.protocols import data_plan
from lsm_core.names import BenchmarkName
from tests.end_to_end.local_stack import REPOSITORY, ask, local_stack, run

SMOKE: dict[str, dict[str, Any]] = {
    "lsm/full-benchmark": {"preset": "smoke"},
    "prepare/prepare-datasets": {"preset": "smoke"},
    "train/train-one-model": {"preset": "smoke", "seeds": [7]},
    "transfer/transfer-study": {
        "preset": "smoke",
        "models": ["lsm"],
        "rows": ["lsm from scratch, 20% of the data", "lsm fine-tuned, 20% of the data"],
    },
    "resolutions/darcy-resolutions": {"preset": "smoke", "models": ["lsm"]},
    "resolutions/burgers-resolutions": {"preset": "smoke", "models": ["lsm"]},
    "resolutions/navier-stokes-resolutions": {"preset": "smoke", "models": ["lsm"]},
    "ablations/ablation-study": {"preset": "smoke", "rows": ["without patches"]},
    "hyperparameters/hyperparameter-study": {
        "preset": "smoke",
        "rows": ["2 tokens", "8 basis operators"],
    },
    "stability/stability-study": {"preset": "smoke", "benchmarks": ["burgers"], "seeds": [0, 1]},
    "efficiency/efficiency-study": {"models": ["lsm"], "sizes": [32]},
    "retrain/scheduled": {"benchmark": "burgers", "n_new": 8},
}
"""What makes a run a matter of minutes: all of the benchmark, parts of the studies."""

CELL = "cell/train-cell"
"""What comparisons submit; no person does."""
N_PAIRS = len(benchmark_cells("smoke", None, None, [0]))
SUITES = {
    "lsm/full-benchmark": ("benchmark-smoke", N_PAIRS),
    "train/train-one-model": ("train", 1),
    "transfer/transfer-study": ("transfer-smoke", 2),  # the source is the benchmark's
    "resolutions/darcy-resolutions": ("resolutions-darcy-smoke", 1),  # and so is one size
    "resolutions/burgers-resolutions": ("resolutions-burgers-smoke", 1),
    "resolutions/navier-stokes-resolutions": ("resolutions-navier-stokes-smoke", 1),
    "ablations/ablation-study": ("ablations-smoke", 2),
    "hyperparameters/hyperparameter-study": ("hyperparameters-smoke", 2),
    "stability/stability-study": ("stability-smoke", 1),
    "efficiency/efficiency-study": ("efficiency", 2),
    "retrain/scheduled": ("retrain", 1),
}
"""Under which tag MLflow has the finished runs, and how many there are at least."""


@cache
def declared() -> dict[str, dict[str, Any]]:
    """Return the deployments of prefect.yaml by the names that users give."""
    found = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]
    return {f"{_flow(each['entrypoint']).name}/{each['name']}": each for each in found}


def _flow(entrypoint: str) -> Any:
    module, _, name = entrypoint.partition(":")
    return getattr(import_module(module), name)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with local_stack(tmp_path_factory.mktemp("stack")) as settings:
        yield settings


def submit(name: str, parameters: dict[str, Any], settings: dict[str, str]) -> Any:
    """Run a deployment to its end and return the finished command."""
    command = ["prefect", "deployment", "run", name, "--watch", "--watch-timeout", "3000"]
    for key, value in parameters.items():
        command += ["--param", f"{key}={json.dumps(value)}"]
    return run(command, settings, seconds=3100)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_deployment_ends_well_with_runs_and_artifacts(stack: dict[str, str]) -> None:
    assert set(SMOKE) == set(declared()) - {CELL}
    failures = {}
    # The data of a preparation is told of, that of a training is not.
    for name in sorted(SMOKE, key=lambda each: each != "prepare/prepare-datasets"):
        try:
            done = submit(name, SMOKE[name], stack)
        except subprocess.TimeoutExpired:
            failures[name] = "it did not end"
            continue
        if done.returncode:
            failures[name] = done.stdout[-800:] + done.stderr[-800:]
            continue
        (flow_run,) = set(re.findall(r"UUID: ([0-9a-f-]{36})", done.stdout))
        wanted = {"artifacts": {"flow_run_id": {"any_": [flow_run]}}}
        if not ask(stack, "artifacts/filter", wanted):
            failures[name] = "it made no artifact"
        suite, least = SUITES.get(name, ("", 0))
        n_runs = len(finished_runs(stack, suite)) if suite else 0
        if n_runs < least:
            failures[name] = f"MLflow has {n_runs} runs of {suite}, expected {least}"
    assert failures == {}
    champion = mlflow.MlflowClient(tracking_uri(stack)).get_model_version_by_alias(
        "pde-burgers", "champion"
    )
    assert champion.tags["preset"] == "smoke"
    all_runs = ask(stack, "flow_runs/filter", {"deployments": {"name": {"any_": ["scheduled"]}}})
    retrained = [each for each in all_runs if not each["auto_scheduled"]]  # those of tonight wait
    asked = [each["parameters"] for each in retrained]
    announced = {each["benchmark"]: each["dataset"] for each in asked if each.get("dataset")}
    assert set(announced) == set(get_args(BenchmarkName))
    assert len(asked) == len(announced) + 1  # and the one that was submitted
    assert all(f"/datasets/{name}/" in place for name, place in announced.items())
    spans = sorted((r["start_time"], r["end_time"]) for r in retrained if r["end_time"])
    assert spans
    assert all(ended <= begun for (_, ended), (begun, _) in pairwise(spans))


def tracking_uri(settings: dict[str, str]) -> str:
    return f"http://127.0.0.1:{settings['LSM_MLFLOW_PORT']}"


def finished_runs(settings: dict[str, str], suite: str) -> list[Any]:
    client = mlflow.MlflowClient(tracking_uri(settings))
    everywhere = [each.experiment_id for each in client.search_experiments()]
    query = f"attributes.status = 'FINISHED' and tags.suite = '{suite}'"
    return list(client.search_runs(everywhere, query))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_files_in_a_watched_folder_are_trained_on_once(
    stack: dict[str, str], tmp_path: Path
) -> None:
    assert (
        submit("train/train-one-model", SMOKE["train/train-one-model"], stack).returncode == 0
    )  # there is a champion
    random = np.random.default_rng(0)
    fields = {name: random.random((5, 64), dtype=np.float32) for name in ("initial", "final")}
    np.savez(tmp_path / "measured.npz", **fields)
    long_ago = (tmp_path / "measured.npz").stat().st_mtime - 3600
    os.utime(tmp_path / "measured.npz", (long_ago, long_ago))
    before = len(finished_runs(stack, "retrain"))
    watched = {"benchmark": "burgers", "watched": str(tmp_path)}
    for _ in range(2):
        done = submit("retrain/scheduled", watched, stack)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(finished_runs(stack, "retrain")) == before + 1
    newest, *_ = finished_runs(stack, "retrain")
    assert "'n_samples': 4" in newest.data.params["data.added"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_converted_dataset_is_trained_on_when_it_is_told_of(
    stack: dict[str, str], tmp_path: Path
) -> None:
    assert (
        submit("train/train-one-model", SMOKE["train/train-one-model"], stack).returncode == 0
    )  # there is a champion
    export = ["flows.cli", "prepare", "burgers", "--preset", "smoke", "--export", str(tmp_path)]
    assert run(export, stack).returncode == 0
    before = len(finished_runs(stack, "retrain"))
    official = {"benchmarks": ["burgers"], "official": True, "mirrors": [str(tmp_path)]}
    done = submit("prepare/prepare-datasets", official, stack)
    assert done.returncode == 0, done.stdout + done.stderr
    deadline = time.monotonic() + 600
    while len(finished_runs(stack, "retrain")) == before:
        assert time.monotonic() < deadline
        time.sleep(1)
    newest, *_ = finished_runs(stack, "retrain")
    n_converted = data_plan("smoke", "burgers").n_train
    assert f"'n_samples': {n_converted - n_converted // 5}" in newest.data.params["data.added"]


WRONG: dict[str, dict[str, Any]] = {
    "train/train-one-model": {"training": {"enormous": 3}},
    "efficiency/efficiency-study": {"sizes": "enormous"},
    "retrain/scheduled": {"benchmark": "enormous"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOKE)
def test_a_wrong_parameter_is_rejected_at_submission(name: str, stack: dict[str, str]) -> None:
    wrong = WRONG.get(name, {"preset": "enormous"})
    deployment = ask(stack, f"deployments/name/{name}")
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(stack, f"deployments/{deployment['id']}/create_flow_run", {"parameters": wrong})
    assert refused.value.code == 409
    assert "enormous" in refused.value.read().decode()
