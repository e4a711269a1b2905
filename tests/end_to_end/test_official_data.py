"""Training on official files, which here are exported from generated data, as a user does it."""

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest

from flows.cli.main import main
from lsm_core.experiments.protocols import data_plan
from lsm_core.names import BenchmarkName
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from tests.end_to_end.local_stack import environment, run
from tests.flows.steps.data.generation import generated

PRESET = ["--preset", "smoke"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("official")


@pytest.fixture(scope="module")
def settings(store: Path) -> dict[str, str]:
    """Return an environment with a mirror that has the files of two benchmarks.

    The data is made here, so that the command has nothing to do but to write it as files.
    """
    made = environment(
        store, PREFECT_API_URL="http://127.0.0.1:9/api", LSM_MIRRORS=str(store / "files")
    )
    names: list[BenchmarkName] = ["burgers", "darcy"]
    for name in names:
        generated(data_plan("smoke", name), Location.parse(str(store)))
    export = ["flows.cli", "prepare", *names, *PRESET, "--export", str(store / "files")]
    done = run(export, made)
    assert done.returncode == 0, done.stderr
    assert not (store / "prefect").exists(), "a server was started though nothing was to do"
    return made


@pytest.fixture(scope="module")
def official(settings: dict[str, str]) -> dict[str, Any]:
    command = ["flows.cli", "benchmark", *PRESET, "--benchmarks", "burgers", "--models", "fno"]
    done = run([*command, "--official", "--json"], settings)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def test_a_benchmark_on_official_data_stands_apart(official: dict[str, Any], store: Path) -> None:
    (result,) = official["results"]
    assert result["origin"] == "exported"
    assert result["suite"] == "benchmark-smoke-official"
    assert "reports/benchmark-smoke-official" in official["report"]
    client = mlflow.MlflowClient(f"sqlite:///{store}/mlflow.db")
    (version,) = client.search_model_versions("name = 'pde-burgers'")
    assert version.tags["origin"] == "exported"
    experiment = client.get_experiment_by_name("pde-burgers")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id], "tags.origin = 'exported'")
    assert found.data.tags["identity"] == result["identity"]
    assert found.data.metrics["error in percent/test"] == pytest.approx(
        100 * result["test"]["rel_l2"]
    )
    comparison = client.get_experiment_by_name("comparison")
    assert comparison is not None
    (row,) = client.search_runs([comparison.experiment_id], "tags.origin = 'exported'")
    assert row.data.tags["suite"] == "benchmark-smoke-official"


@pytest.mark.slow
def test_a_second_call_trains_nothing_and_files_that_are_gone_stop_only_their_cells(
    official: dict[str, Any], settings: dict[str, str], store: Path
) -> None:
    next((store / "files").glob("*smooth2.mat")).unlink()
    command = ["flows.cli", "benchmark", *PRESET, "--benchmarks", "burgers", "darcy"]
    done = run([*command, "--models", "fno", "--official"], settings)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert "1 of 2 runs failed" in said
    assert "smooth2.mat could not be had" in said
    kept = Checkpoints(
        Location.parse(str(store)) / "checkpoints" / official["results"][0]["identity"]
    )
    result = kept.result()
    assert result is not None
    assert result["finished"] == official["results"][0]["finished"]
    page = Path(official["report"].removeprefix("file://")).read_text()
    assert "darcy" in page


@pytest.mark.slow
def test_a_model_of_official_data_predicts(
    official: dict[str, Any], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSM_STORE", str(store))
    fields = np.random.default_rng(0).random((2, 64), dtype=np.float32)
    np.savez(tmp_path / "in.npz", initial=fields)
    identity = official["results"][0]["identity"]
    out = tmp_path / "out.npz"
    assert main(["predict", identity, str(tmp_path / "in.npz"), "--out", str(out)]) == 0
    with np.load(out) as predicted:
        assert predicted["final"].shape == (2, 64)
