"""A trained model, rebuilt from its run, and as a folder that MLflow loads and serves.

Loading runs the code in the folder; this process has the same sources loaded already.
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import psutil
import pytest
import torch
from mlflow.exceptions import MlflowException
from safetensors.torch import save

from flows.engine.own_server import free_port
from flows.errors import BadInput
from flows.stack.services import start_service, stop_process, wait_until_healthy
from flows.steps.models.packaging import (
    TrainedRun,
    open_package,
    package,
    requirements,
    trained_run,
)
from lsm_core.experiments.plans import benchmark_from_plain
from lsm_core.problems.fields import stack_channels
from lsm_core.surrogates.predictor import TrainedModel
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from tests.flows.steps.trained_runs import cell, random_samples, write_run

SMALL = {
    "burgers": {"resolution": 32},
    "darcy": {"resolution": 20},
    "navier_stokes": {"resolution": 16},
    "elasticity_p": {},
    "elasticity_g": {},
    "plasticity": {},
    "airfoil": {},
    "pipe": {},
}


def run_of(folder: Path, benchmark: str, model: str = "fno", **parameters: Any) -> TrainedRun:
    root = Location.parse(str(folder / "store"))
    made = cell(benchmark, model, **parameters)
    write_run(made, root)
    return trained_run(made.identity, root)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    return run_of(tmp_path_factory.mktemp("run"), "burgers", resolution=32)


@pytest.fixture(scope="module")
def folder(run: TrainedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package(run, tmp_path_factory.mktemp("models") / "burgers")


@pytest.fixture(autouse=True)
def import_path_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_the_folder_predicts_what_the_run_predicts(run: TrainedRun, folder: Path) -> None:
    model = mlflow.pyfunc.load_model(str(folder))
    inputs = {"initial": random_samples(run.benchmark, seed=5)["initial"]}
    expected = run.predictor(inputs)["final"]
    assert np.array_equal(model.predict(inputs)["final"], expected)
    assert np.array_equal(open_package(folder).predictor(inputs)["final"], expected)


def test_the_folder_predicts_at_another_grid(run: TrainedRun, folder: Path) -> None:
    inputs = {"initial": np.ones((2, 48), np.float32)}
    predicted = mlflow.pyfunc.load_model(str(folder)).predict(inputs)
    assert predicted["final"].shape == (2, 48)
    assert np.array_equal(predicted["final"], run.predictor(inputs)["final"])


def test_the_folder_says_what_it_is(run: TrainedRun, folder: Path) -> None:
    model = mlflow.models.Model.load(str(folder))
    assert model.metadata["dataset"] == "d" * 64
    assert model.metadata["identity"] == run.result.identity
    assert model.get_input_schema().to_dict() == [
        {
            "name": "initial",
            "type": "tensor",
            "tensor-spec": {"dtype": "float32", "shape": (-1, -1)},
        }
    ]
    example = model.load_input_example(str(folder))
    assert np.allclose(example["initial"], run.example["initial"])
    assert open_package(folder).benchmark == run.benchmark


def test_nothing_is_pickled_and_only_needed_sources_travel(folder: Path) -> None:
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".pt", ".bin"))]
    assert "code/lsm_core/models/lsm.py" in files
    assert "code/lsm_core/layers/__init__.py" in files
    assert not [name for name in files if "solvers" in name or "benchmarks" in name]
    named = [line.partition("==")[0] for line in requirements()]
    # numba: the series of LSM is a compiled loop on a CPU.
    assert {"mlflow", "numba", "numpy", "safetensors", "torch"} <= set(named)
    assert not {"scipy", "xarray", "prefect"} & set(named)


def test_a_model_tied_to_its_grid_says_so_in_its_signature(tmp_path: Path) -> None:
    tied = package(run_of(tmp_path, "darcy", resolution=20), tmp_path / "darcy")
    (spec,) = mlflow.models.Model.load(str(tied)).get_input_schema().inputs
    assert spec.shape == (-1, 20, 20)
    with pytest.raises(MlflowException, match="does not match expected shape"):
        mlflow.pyfunc.load_model(str(tied)).predict(
            {"coefficient": np.ones((1, 24, 24), np.float32)}
        )


def test_another_folder_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no model folder that can be read here"):
        open_package(tmp_path)


@pytest.fixture(scope="module")
def served(run: TrainedRun, folder: Path) -> Iterator[str]:
    port, log = free_port(), folder.with_name("serve.log")
    command = ("mlflow", "models", "serve", "--model-uri", str(folder), "--env-manager", "local")
    command += ("--host", "127.0.0.1", "--port", str(port), "--workers", "1")
    # MLflow calls its server by name.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "MLFLOW_DISABLE_TELEMETRY": "true"}
    started = start_service(command, log, environment, ends_with_parent=True)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/ping", psutil.Process(started.pid), log)
        yield f"http://127.0.0.1:{port}/invocations"
    finally:
        stop_process(psutil.Process(started.pid))
        started.wait()


def post(url: str, content: bytes) -> tuple[int, Any]:
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_served_model_answers_and_refuses_malformed_input(run: TrainedRun, served: str) -> None:
    values = run.example["initial"]
    status, answer = post(served, json.dumps({"inputs": {"initial": values.tolist()}}).encode())
    assert status == 200
    expected = run.predictor({"initial": values})["final"]
    assert np.array_equal(np.array(answer["predictions"]["final"], np.float32), expected)

    malformed: dict[str, Any] = {
        "is missing": {"inputs": {"start": values.tolist()}},
        "does not match expected shape": {"inputs": {"initial": [1.0, 2.0]}},
        "NaN or infinity": {"inputs": {"initial": [[float("nan")] * 32]}},
        "exactly one of the input fields": {"fields": 1},
        "could not convert string to float": {"inputs": {"initial": [["a", "b"]]}},
    }
    for sentence, content in malformed.items():
        status, answer = post(served, json.dumps(content).encode())
        assert 400 <= status < 500, (status, answer)
        assert sentence in answer["message"], answer
    status, answer = post(served, b"this is no JSON")
    assert status == 400
    assert "JSON" in answer["message"]


@pytest.mark.slow
def test_a_new_environment_with_the_declared_requirements_predicts_the_same(
    run: TrainedRun, folder: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", str(folder / "requirements.txt")], check=True)
    np.savez(tmp_path / "inputs.npz", **run.example)
    program = (
        "import sys, numpy, mlflow\n"
        "folder, given, made = sys.argv[1:]\n"
        "inputs = dict(numpy.load(given))\n"
        "numpy.savez(made, **mlflow.pyfunc.load_model(folder).predict(inputs))\n"
        "import lsm_core\n"
        "assert lsm_core.__file__.startswith(folder), lsm_core.__file__\n"
    )
    places = [str(folder), str(tmp_path / "inputs.npz"), str(tmp_path / "made.npz")]
    # Run elsewhere, so that the project's sources are out of reach.
    subprocess.run([python, "-c", program, *places], cwd=tmp_path, check=True)
    with np.load(tmp_path / "made.npz") as made:
        assert np.allclose(made["final"], run.predictor(run.example)["final"], rtol=1e-5, atol=0)


@pytest.fixture
def root(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path))


@pytest.mark.parametrize("model", ["lsm", "fno"])
@pytest.mark.parametrize("name", SMALL)
def test_the_model_of_a_run_is_rebuilt_exactly(name: str, model: str, root: Location) -> None:
    made = cell(name, model, **SMALL[name])
    expected = write_run(made, root)
    run = trained_run(made.identity, root)
    assert run.benchmark == made.data.benchmark
    assert run.predictor.model.model == made.model
    assert TrainedModel.from_plain(json.loads(json.dumps(asdict(run.predictor.model)))) == (
        run.predictor.model
    )
    rebuilt = run.predictor.surrogate()
    assert rebuilt.state_dict().keys() == expected.state_dict().keys()
    arrays = random_samples(made.data.benchmark, seed=7)
    inputs = run.benchmark.with_role("input")
    fields = torch.tensor(stack_channels(arrays, inputs, run.predictor.model.grid))
    with torch.no_grad():
        assert torch.equal(rebuilt(fields), expected(fields))
    predicted = run.predictor(arrays)
    assert {n: v.shape for n, v in predicted.items()} == {
        v.name: (3, *v.shape) for v in run.benchmark.with_role("target")
    }


def test_a_model_predicts_at_another_grid(root: Location) -> None:
    made = cell("burgers", "fno", resolution=32)
    write_run(made, root)
    predictor = trained_run(made.identity, root).predictor
    fine = torch.sin(2 * torch.pi * torch.arange(64) / 64).numpy()[None]
    coarse, twice = predictor({"initial": fine[:, ::2]}), predictor({"initial": fine})
    assert twice["final"].shape == (1, 64)
    # The appended coordinates differ a little between the grids, everything else is the same.
    assert abs(twice["final"][:, ::2] - coarse["final"]).max() < 0.05 * abs(coarse["final"]).max()


def test_pointwise_statistics_tie_a_model_to_its_grid(root: Location) -> None:
    made = cell("darcy", "fno", resolution=20)
    assert made.training.input_normalization == "pointwise"
    write_run(made, root)
    predictor = trained_run(made.identity, root).predictor
    assert predictor.supports({"x": 20, "y": 20})
    assert not predictor.supports({"x": 24, "y": 24})
    with pytest.raises(ValueError, match="point by point on 20 x 20 points and cannot predict"):
        predictor({"coefficient": random_samples(made.data.benchmark)["coefficient"][:, :18, :18]})


def test_a_run_that_is_not_there_is_said(root: Location) -> None:
    with pytest.raises(BadInput, match="there is no finished run 0123"):
        trained_run("0123", root)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": {"width": 16}}, "lack n_modes, n_layers, head_width, padding"),
        ({"model_name": "gpt"}, "there is no model 'gpt'; known are lsm"),
        ({"data": {"benchmark": "heat", "parameters": {}}}, "there is no benchmark 'heat'"),
    ],
)
def test_settings_of_another_version_are_refused_in_a_sentence(
    change: dict[str, object], sentence: str, root: Location
) -> None:
    made = cell("burgers", "fno", resolution=32)
    write_run(made, root)
    checkpoints = Checkpoints(root / "checkpoints" / made.identity)
    result = checkpoints.result()
    assert result is not None
    checkpoints.write_result({**result, "settings": {**result["settings"], **change}})
    with pytest.raises(BadInput, match=sentence) as caught:
        trained_run(made.identity, root)
    assert made.identity in str(caught.value)


def test_weights_of_another_model_are_refused(root: Location) -> None:
    made = cell("burgers", "fno", resolution=32)
    write_run(made, root)
    other = replace(made, model=replace(made.model, width=8))
    weights = {f"model.{n}": v for n, v in write_run(other, root).state_dict().items()}
    content = save(weights, {"state": json.dumps({})})
    Checkpoints(root / "checkpoints" / made.identity).save(5, content)
    with pytest.raises(BadInput, match="cannot be rebuilt"):
        trained_run(made.identity, root)


def test_every_benchmark_comes_back_from_plain_data() -> None:
    for name, parameters in SMALL.items():
        plan = cell(name, **parameters).data
        assert benchmark_from_plain(json.loads(json.dumps(plan.to_plain()))) == plan.benchmark
