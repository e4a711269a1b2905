"""Data that nobody here made, from its files to a table of five models and predictions in kind."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from storage.fields.files import open_arrays
from tests.outside_data import REPOSITORY, beside, bring, of_smithers

MODELS = ["ridge", "pod_rbf", "fno", "lsm_ours"]


@dataclass(frozen=True)
class Problem:
    """Files of a problem, the last of them asked for, what is predicted, and the fifth model.

    A name without an ending is that of a dataset of smithers.
    """

    files: tuple[str, ...]
    target: str
    fifth: str


PROBLEMS = {
    "darcy16": Problem(("darcy_train_16.pt", "darcy_test_16.pt"), "y", "transolver"),
    "burgers16": Problem(("burgers_train_16.pt", "burgers_test_16.pt"), "y", "transolver"),
    "holed": Problem(("holed_poisson.pt",), "u", "lno"),
    "block": Problem(("elastic_block",), "snapshots", "pod_nn"),
    "heat": Problem(("unsteady_heat",), "snapshots", "flare"),
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PROBLEMS)
def test_outside_data_becomes_a_table_of_five_models_and_predictions(
    name: str, tmp_path: Path
) -> None:
    problem = PROBLEMS[name]
    files = files_of(problem)
    models = [*MODELS, problem.fifth]
    said = ["--targets", problem.target]
    run(tmp_path, "ingest", *map(str, files), "--as", name, *said, "--yes")
    names = ["--benchmarks", name, "--models", *models]
    run(tmp_path, "benchmark", "--preset", "smoke", *names)
    registered = json.loads(run(tmp_path, "registry", "list", "--json"))
    assert {each["name"] for each in registered} == {f"pde-{name}"}
    assert {each["tags"]["model"] for each in registered} == set(models)
    page = (tmp_path / "store" / "reports" / "benchmark-smoke" / "index.html").read_text()
    assert all(model in page for model in (name, "ridge", "pod_rbf", "fno", problem.fifth))
    asked = files[-1]
    out = tmp_path / f"out{asked.suffix}"
    words = [f"pde-{name}@champion", str(asked), "--out", str(out)]
    assert "mean relative L2 error" in run(tmp_path, "predict", *words)
    check_written(asked, problem.target, out)


def files_of(problem: Problem) -> list[Path]:
    """Return where the files lie; a test without them is skipped, and says why."""
    if "." not in problem.files[0]:
        missing = bring()
        if missing:
            pytest.skip(missing)
    found = [beside(name) if "." in name else of_smithers(name) for name in problem.files]
    if None in found:
        pytest.skip(f"{' or '.join(problem.files)} is not in ../shared/data/outside")
    return [path for path in found if path]


def check_written(asked: Path, target: str, out: Path) -> None:
    """Check that predictions stand beside what the file held, as many as there are samples."""
    if out.suffix == ".pt":
        held = torch.load(asked, weights_only=True)
        back = torch.load(out, weights_only=True)
        assert set(back) == {*held, f"{target}_predicted"}
        predicted = back[f"{target}_predicted"]
        assert len(predicted) in held[target].shape
    else:
        arrays = {k: a for path in out.iterdir() for k, a in open_arrays(path).items()}
        predicted = np.asarray(arrays[f"{target}_predicted"][...])
    assert np.isfinite(np.asarray(predicted)).all()


def run(folder: Path, *words: str) -> str:
    ours = ("LSM_", "PREFECT_", "MLFLOW_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *words],
        cwd=REPOSITORY,
        env={**kept, "LSM_STORE": str(folder / "store")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout
