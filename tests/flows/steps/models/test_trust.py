"""A run is calibrated once, from its own data, and its model carries that wherever it goes."""

from pathlib import Path

import mlflow
import numpy as np
import pytest

from flows.steps.models.packaging import TrainedRun, open_package, package, trained_run
from flows.steps.models.prediction import Outputs, predict_file
from flows.steps.models.trust import measured_trust, with_trust
from storage.datasets.reader import Dataset
from storage.location import Location
from tests.flows.steps.data.generation import generated
from tests.flows.steps.trained_runs import cell, write_run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Location:
    return Location.parse(str(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def dataset(root: Location) -> Dataset:
    return generated(cell("burgers", "lsm_ours").data, root)


@pytest.fixture(scope="module")
def run(root: Location, dataset: Dataset) -> TrainedRun:
    made = cell("burgers", "lsm_ours")
    write_run(made, root)
    assert trained_run(made.identity, root).trust is None
    return with_trust(trained_run(made.identity, root), root)


def test_a_run_is_calibrated_once_and_keeps_it(run: TrainedRun, root: Location) -> None:
    assert run.trust is not None
    assert (len(run.trust.ratios), run.trust.coverage) == (8, 8 / 9)
    kept = trained_run(run.result.identity, root)
    assert kept.trust is not None
    assert np.array_equal(kept.trust.basis, run.trust.basis)
    assert with_trust(kept, root) is kept
    found = measured_trust(root, run.result.identity)
    assert found is not None
    assert found[1].errors.shape == found[1].spreads.shape == found[1].strangeness.shape == (16,)


def test_a_prediction_says_what_to_expect(
    run: TrainedRun, dataset: Dataset, root: Location, tmp_path: Path
) -> None:
    usual = dataset.part("test", ["initial", "final"])[:6]
    strange = {"initial": 10 * usual["initial"]}
    told = {}
    for name, given in (("usual", usual), ("strange", strange)):
        np.savez(tmp_path / f"{name}.npz", **given)
        outputs = Outputs(fields=tmp_path / f"{name}_predicted.npz")
        source = tmp_path / f"{name}.npz"
        told[name] = predict_file(run.result.identity, source, outputs, root, "unused")["trust"]
    assert told["usual"]["coverage"] == 8 / 9
    assert all(told["strange"]["is_strange"])
    assert not all(told["usual"]["is_strange"])
    kept = np.load(tmp_path / "usual_predicted.npz")
    assert kept["expected_error"] == pytest.approx(told["usual"]["expected_error"])
    assert kept["final"].shape == (6, 64)


def test_a_file_that_says_another_viscosity_is_not_trusted(
    run: TrainedRun, dataset: Dataset, root: Location, tmp_path: Path
) -> None:
    usual = dataset.part("test", ["initial"])[:3]
    said = {}
    for viscosity in (0.1, 0.01):
        np.savez(tmp_path / "given.npz", viscosity=viscosity, **usual)
        outputs = Outputs(fields=tmp_path / "predicted.npz")
        told = predict_file(run.result.identity, tmp_path / "given.npz", outputs, root, "unused")
        said[viscosity] = told["reasons"], all(np.load(outputs.fields)["is_strange"])
    assert said[0.1] == ([], False)
    (reason,), is_strange = said[0.01]
    assert reason.startswith("it was trained at viscosity 0.1 alone")
    assert is_strange


def test_another_grid_has_no_expected_error(
    run: TrainedRun, root: Location, tmp_path: Path
) -> None:
    np.savez(tmp_path / "given.npz", initial=np.sin(np.linspace(0, 6, 128)))
    outputs = Outputs(fields=tmp_path / "predicted.npz")
    told = predict_file(run.result.identity, tmp_path / "given.npz", outputs, root, "unused")
    assert told["trust"] is None


def test_a_packaged_model_answers_with_its_trust(
    run: TrainedRun, dataset: Dataset, tmp_path: Path
) -> None:
    folder = package(run, tmp_path / "model")
    given = {"initial": dataset.part("test", ["initial"])[:3]["initial"]}
    _, expected = run.predictor.with_opinion(given, run.trust)
    assert expected is not None
    answer = mlflow.pyfunc.load_model(str(folder)).predict(given)
    assert answer["expected_error"] == pytest.approx(expected.expected_error, rel=1e-6)
    assert answer["is_strange"].tolist() == expected.is_strange.tolist()
    trust = open_package(folder).trust
    assert trust is not None
    assert np.array_equal(trust.ratios, run.trust.ratios)


def test_without_its_data_a_run_says_nothing(tmp_path: Path) -> None:
    root = Location.parse(str(tmp_path / "elsewhere"))
    made = cell("burgers", "fno", resolution=32)
    write_run(made, root)
    run = trained_run(made.identity, root)
    assert with_trust(run, root) is run
