"""Generated data, written as the official files are, comes back through the official way."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from flows.errors import BadInput
from flows.steps.data.datasets import location_of
from flows.steps.data.official import (
    converted_plan,
    fetch_and_convert,
    identified,
    official_plan,
)
from flows.steps.models.packaging import trained_run
from flows.steps.models.retraining import NoMoreSeeds, with_files, with_more_seeds
from flows.steps.reports.page import write_data_report, write_report
from flows.steps.reports.results import Comparison, read_outcomes
from flows.steps.training import run as training
from flows.steps.training.cells import bind, on_official_data, plans_of
from flows.steps.training.workplace import Workplace
from lsm_core.experiments.experiment import BoundExperiment, Experiment
from lsm_core.experiments.plans import AddedSamples, OfficialPlan, extended
from lsm_core.experiments.protocols import data_plan
from lsm_core.names import BenchmarkName, PresetName
from lsm_core.studies.catalogue import study_cells
from storage.datasets.reader import open_dataset
from storage.location import Location
from storage.official.download import no_report
from storage.official.export import export_dataset
from tests.flows.steps.data.generation import generated
from tests.flows.steps.trained_runs import cell

PARAMETERS = {"resolution": 32, "solver_points": 64, "solver_steps": 20}


@pytest.mark.parametrize("name", ["burgers", "darcy", "elasticity_g"])
def test_exported_files_become_the_same_dataset(name: BenchmarkName, tmp_path: Path) -> None:
    plan = data_plan("smoke", name)
    here, there = (Location.parse(str(tmp_path / place)) for place in ("here", "there"))
    ours = generated(plan, here)
    files = export_dataset(ours, tmp_path / "files")
    assert files
    mirror = str(tmp_path / "files")
    notes: list[str] = []

    def report(name: str, done: int, total: int, note: str) -> None:
        notes.append(name)

    place = fetch_and_convert(name, there, [mirror], None, report, n_workers=1)
    theirs = open_dataset(place)
    names = [v.name for v in plan.benchmark.variables if v.role in ("input", "target")]
    for split in ("train", "validation", "test"):
        expected = ours.part(split, names)[:]
        found = theirs.part(split, names)[:]
        for variable in names:
            np.testing.assert_array_equal(found[variable], expected[variable])
    assert notes
    page = write_data_report(here, "smoke").read_bytes().decode()
    assert f"({name})" in page
    assert page.count("<svg") == 1


@pytest.mark.parametrize(
    ("preset", "name", "stride", "sizes"),
    [
        ("paper", "burgers", 32, (1000, 100, 100)),
        ("paper", "darcy", 5, (1000, 100, 200)),
        ("release", "navier_stokes", 1, (1000, 0, 200)),
        ("paper", "elasticity_p", 1, (1000, 100, 200)),
        ("paper", "elasticity_g", 1, (1000, 100, 200)),
        ("paper", "plasticity", 1, (900, 7, 80)),
        ("paper", "airfoil", 1, (1000, 100, 200)),
        ("paper", "pipe", 1, (1000, 100, 200)),
        ("quick", "darcy", 10, (240, 30, 50)),
        ("quick", "airfoil", 2, (100, 8, 16)),
        ("quick", "plasticity", 2, (40, 4, 8)),
    ],
)
def test_the_published_files_have_the_grids_and_samples_of_the_presets(
    preset: PresetName, name: BenchmarkName, stride: int, sizes: tuple[int, int, int]
) -> None:
    plan = official_plan(data_plan(preset, name), [])
    assert plan.stride == stride
    assert tuple(plan.split_sizes.values()) == sizes
    assert plan.origin == "official"
    assert plan.benchmark == data_plan(preset, name).benchmark


def test_files_that_do_not_suit_a_plan_are_refused_before_they_are_fetched() -> None:
    with pytest.raises(BadInput, match="darcy have 421x421 points, of which no stride leaves 32x3"):
        official_plan(data_plan("smoke", "darcy"), [])
    many = replace(data_plan("paper", "darcy"), n_train=1001)
    with pytest.raises(BadInput, match="1000 samples to train and 200 to test on, but 1001 and 2"):
        official_plan(many, [])
    for study in study_cells("resolutions-burgers", "paper", [0], ["lsm"]):
        assert official_plan(study.experiment.data, []).stride <= 32


def test_no_epoch_is_chosen_by_validation_samples_that_there_are_not() -> None:
    made = cell("navier_stokes", "fno")
    unbound = replace(made.experiment, data=data_plan("paper", "navier_stokes"))
    made = bind(unbound)
    training = replace(made.training, selection="best_validation")
    chosen = bind(replace(unbound, training=training))
    plans = {made.data: official_plan(made.data, [])}
    assert on_official_data(made, plans).data == plans[made.data]
    with pytest.raises(BadInput, match="navier_stokes leave no samples to validate on"):
        on_official_data(chosen, plans)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store, and with exported files that have no validation samples."""
    made = tmp_path_factory.mktemp("exported")
    plan = replace(cell("burgers", **PARAMETERS).data, n_train=12, n_validation=0, n_test=6)
    export_dataset(generated(plan, Location.parse(str(made / "store"))), made / "files")
    return made


@pytest.fixture(scope="module")
def root(folder: Path) -> Location:
    return Location.parse(str(folder / "store"))


@pytest.fixture(scope="module")
def ours() -> BoundExperiment:
    """Return a cell on fewer samples than the files have."""
    made = cell("burgers", **PARAMETERS)
    return bind(replace(made.experiment, data=replace(made.data, n_train=8, n_test=4)))


@pytest.fixture(scope="module")
def theirs(ours: BoundExperiment, folder: Path, root: Location) -> BoundExperiment:
    mirrors = [str(folder / "files")]
    with pytest.raises(BadInput, match="`lsm prepare burgers --official --stride 1` brings them"):
        converted_plan(ours.data, root, mirrors)
    plan = official_plan(ours.data, mirrors)
    place = fetch_and_convert("burgers", root, mirrors, plan.stride, no_report, n_workers=1)
    plan = identified(plan, place)
    assert converted_plan(ours.data, root, mirrors) == plan
    return on_official_data(ours, dict.fromkeys(plans_of(ours), plan))


@pytest.fixture(scope="module")
def results(
    ours: BoundExperiment, theirs: BoundExperiment, folder: Path, root: Location
) -> dict[str, dict[str, Any]]:
    """Return what comes of the same training on generated and on exported data."""
    unvalidated = bind(replace(ours.experiment, data=replace(ours.data, n_validation=0)))
    generated(unvalidated.data, root)

    def trained(experiment: BoundExperiment) -> dict[str, Any]:
        place = Workplace(
            root=root,
            dataset=location_of(experiment.data, root),
            tracking_uri=f"sqlite:///{folder}/mlflow.db",
            study="train",
            n_threads=1,
        )
        return training.train(experiment, place, lambda message: None).to_plain()

    return {"generated": trained(unvalidated), "exported": trained(theirs)}


def test_exported_samples_train_to_the_figures_of_the_generated_ones(
    results: dict[str, dict[str, Any]], theirs: BoundExperiment
) -> None:
    ours, official = results["generated"], results["exported"]
    assert official["test"] == ours["test"]
    assert official["validation"] == ours["validation"] == {}
    assert official["n_train"] == 8
    assert official["origin"] == "exported"
    assert ours["origin"] == "generated"
    assert official["identity"] != ours["identity"]
    assert official["dataset"]["name"].startswith("exported-32-")
    assert official["settings"]["data"]["official"]["recipe"] == theirs.dataset
    assert "first_seeds" not in official["settings"]["data"]


def test_a_run_on_other_files_is_another_run(theirs: BoundExperiment) -> None:
    assert isinstance(theirs.data, OfficialPlan)
    other = bind(replace(theirs.experiment, data=replace(theirs.data, recipe="of other files")))
    assert other.identity != theirs.identity


def test_results_on_official_and_on_generated_data_stand_apart(
    results: dict[str, dict[str, Any]], root: Location
) -> None:
    outcomes = read_outcomes(root)
    for origin, result in results.items():
        found = outcomes.of_benchmark(Comparison("smoke", origin))
        assert [one.identity for one in found] == [result["identity"]]
    report = write_report(root, "smoke")
    page = report.page.read_bytes().decode()
    assert "<h2>Main results, preset smoke, exported data</h2>" in page
    assert {row.problem for row in report.rows} == {"burgers (32)", "burgers (32, exported data)"}
    official = write_report(root, "smoke", official=True)
    assert str(official.page).endswith("reports/benchmark-smoke-official/index.html")
    assert "written from data of our own solvers as the published ones are" in official.markdown


def test_a_run_on_official_data_is_read_back(
    results: dict[str, dict[str, Any]], theirs: BoundExperiment, root: Location
) -> None:
    again = Experiment.from_plain(results["exported"]["settings"])
    assert again.protocol == theirs.protocol
    assert bind(again).dataset == theirs.dataset
    assert location_of(again.data, root).name == results["exported"]["dataset"]["name"]
    run = trained_run(theirs.identity, root)
    assert run.predictor(run.example)["final"].shape == (1, 32)
    assert run.facts["origin"] == "exported"


def test_official_samples_are_extended_by_files_and_not_by_seeds(
    theirs: BoundExperiment, root: Location
) -> None:
    with pytest.raises(NoMoreSeeds, match="trained on exported files, which no seeds continue"):
        with_more_seeds(theirs.experiment, 8)
    random = np.random.default_rng(0)
    new = {name: random.random((3, 32), dtype=np.float32) for name in ("initial", "final")}
    file = root.local_path / "added" / "burgers" / f"{'a' * 64}.npz"
    file.parent.mkdir(parents=True)
    np.savez(file, **new)
    more = with_files(theirs.experiment, [AddedSamples(digest="a" * 64, n_samples=3)])
    assert more is not None
    assert more.data.origin == "exported"
    dataset, before = generated(more.data, root), open_dataset(location_of(theirs.data, root))
    train = dataset.part("train", ["final", "seed"])[:]
    np.testing.assert_array_equal(train["final"][:8], before.part("train", ["final"])[:8]["final"])
    np.testing.assert_array_equal(train["final"][8:], new["final"])
    assert set(train["seed"]) == {-1}
    tested = dataset.part("test", ["initial"])[:]["initial"]
    np.testing.assert_array_equal(tested, before.part("test", ["initial"])[:4]["initial"])
    read = Experiment.from_plain(more.to_plain())
    assert read.data == more.data == extended(theirs.data, read.data.added)
    assert bind(more).identity != theirs.identity
    for each in (dataset, before):
        xr.open_zarr(each.location.url)  # a warning is an error here
