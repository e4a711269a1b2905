"""MLflow's own questions have the store's answers: which model is best, on what data, which run."""

from dataclasses import replace
from typing import Any

import mlflow
import pytest

from flows.steps.models.registration import Registrar
from flows.steps.results import keep_result, stored_result
from lsm_core.result import Result
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from storage.tracking.registry import ModelRegistry
from tests.flows.steps.trained_runs import cell, write_run

SMALL: dict[str, dict[str, Any]] = {
    "burgers": {"resolution": 32, "solver_points": 64, "solver_steps": 20},
    "darcy": {"resolution": 16, "stride": 1},
}
ERRORS = {"fno": 0.0812345, "lsm": 0.0359}


def finished_run(root: Location, benchmark: str, model: str, error: float) -> Result:
    """Write the folder of a finished run with this error, and return its result."""
    made = cell(benchmark, model, **SMALL[benchmark])
    write_run(made, root)
    result = stored_result(root, made.identity)
    assert result is not None
    result = replace(result, test={**result.test, "rel_l2": error})
    keep_result(Checkpoints(root / "checkpoints" / made.identity), result)
    return result


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Location:
    return Location.parse(str(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def uri(root: Location) -> str:
    return f"sqlite:///{root.local_path}/mlflow.db"


@pytest.fixture(scope="module")
def best(root: Location, uri: str) -> dict[str, Result]:
    """Register all models of two problems, and return the best of each by the store."""
    found = {}
    registrar = Registrar(root, uri, print)
    for place, benchmark in enumerate(SMALL):
        errors = {model: (place + 1) * error for model, error in ERRORS.items()}
        runs = [finished_run(root, benchmark, *each) for each in errors.items()]
        for run in runs:
            registrar.add(run)
        found[benchmark] = min(runs, key=lambda run: run.error)
    return found


@pytest.mark.parametrize("benchmark", SMALL)
def test_the_best_model_on_a_problem_is_the_stores_with_its_data_run_version_and_error(
    benchmark: str, best: dict[str, Result], root: Location, uri: str
) -> None:
    result, client = best[benchmark], mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name(f"pde-{benchmark}")
    assert experiment is not None
    models = client.search_logged_models(
        [experiment.experiment_id],
        order_by=[
            {
                "field_name": "metrics.test/rel_l2",
                "ascending": True,
                "dataset_name": f"{benchmark}-smoke",
                "dataset_digest": result.dataset.digest[:16],
            }
        ],
    )
    assert [each.name for each in models] == [f"{benchmark}-{m}" for m in ("lsm", "fno")]
    model = models[0]
    assert model.status == "READY"
    errors = {each.key: each for each in model.metrics}
    assert errors["test/rel_l2"].value == pytest.approx(result.error, rel=1e-12)
    assert errors["test/rel_l2"].dataset_digest == result.dataset.digest[:16]
    assert model.params["training.epochs"] == str(result.settings["training"]["epochs"])

    run = client.get_run(model.source_run_id)
    assert run.data.tags["identity"] == result.identity
    (used,) = run.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == (
        f"{benchmark}-smoke",
        result.dataset.digest[:16],
    )
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
    assert run.data.metrics["error in percent/test"] == pytest.approx(100 * result.error)

    version = ModelRegistry(uri, root).state(f"pde-{benchmark}").of_run(result.identity)
    assert version is not None
    told = client.get_model_version(version.name, str(version.number))
    assert told.source == model.artifact_location
    assert told.run_id == run.info.run_id
    n_test = result.settings["data"]["split_sizes"]["test"]
    percent = f"{100 * result.error:.3g}"
    assert told.description == f"LSM, smoke, {percent} % on {n_test} test samples"
    assert f'"version": "{version.number}"' in model.tags["mlflow.modelVersions"]
