"""What is freed of a store, and what never is, with real datasets, runs and records."""

import json
from dataclasses import replace

import pytest

from flows.steps.data.unused import Unused, free, unused
from flows.steps.results import stored_result
from flows.steps.training.cells import bind, keep_cell
from lsm_core.experiments.experiment import BoundExperiment
from storage.datasets.reader import Dataset, open_dataset
from storage.errors import DatasetIncomplete
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from storage.runs.leases import Leases
from storage.tracking.model_record import ModelRecord
from storage.tracking.model_state import Change
from tests.flows.steps.data.generation import generated
from tests.flows.steps.trained_runs import cell, write_run

NAME, URI = "pde-burgers", "sqlite:///nowhere.db"
PARAMETERS = {"resolution": 32, "solver_points": 64, "solver_steps": 20}


@pytest.fixture
def root(tmp_path: object) -> Location:
    made = Location.parse(str(tmp_path))
    ModelRecord(made).begin({})
    return made


def run_on(n_train: int, root: Location, study: str) -> tuple[BoundExperiment, Dataset]:
    """Return a finished run of a study, and its data."""
    made = cell("burgers", "fno", **PARAMETERS)
    plan = replace(made.data, n_train=n_train, n_validation=1, n_test=2)
    made = replace(made, data=plan)
    dataset = generated(plan, root)
    write_run(made, root, study=study)
    checkpoints = Checkpoints(root / "checkpoints" / made.identity)
    result = checkpoints.result()
    assert result is not None
    checkpoints.write_result({**result, "dataset": {"name": dataset.location.name, "digest": ""}})
    return made, dataset


def register(made: BoundExperiment, root: Location) -> int:
    tags = {"identity": made.identity, "preset": "smoke", "suite": "retrain"}
    return ModelRecord(root).add(NAME, tags).number


def places(found: list[Unused]) -> set[str]:
    return {f"{each.kind} {each.place.name}" for each in found}


def test_data_and_weights_of_a_retired_model_are_freed_and_its_result_stays(root: Location) -> None:
    compared, compared_data = run_on(4, root, "benchmark")
    retired, retired_data = run_on(5, root, "retrain")
    kept, kept_data = run_on(6, root, "retrain")
    unregistered, _ = run_on(7, root, "retrain")
    number = register(retired, root)
    register(kept, root)
    assert unused(root, URI) == []
    ModelRecord(root).note(NAME, Change(retired=(number,), reason="old"))
    found = unused(root, URI)
    wanted = {f"weights {retired.identity}", f"dataset {retired_data.location.name}"}
    assert places(found) == wanted
    assert all(each.n_bytes > 0 for each in found)
    assert places(free(found, root, URI)) == wanted
    assert unused(root, URI) == []
    assert not retired_data.location.exists()
    assert stored_result(root, retired.identity) is not None
    for dataset in (compared_data, kept_data):
        open_dataset(dataset.location)
    for run in (compared, kept, unregistered):
        assert Checkpoints(root / "checkpoints" / run.identity).latest() is not None


def test_what_a_waiting_cell_needs_is_not_freed(root: Location) -> None:
    made, dataset = run_on(5, root, "retrain")
    number = register(made, root)
    ModelRecord(root).note(NAME, Change(retired=(number,), reason="old"))
    found = unused(root, URI)
    waiting = bind(replace(made.experiment, seed=9))
    keep_cell(waiting, root)  # between the look and the freeing
    assert dataset.location.name not in {each.place.name for each in free(found, root, URI)}
    open_dataset(dataset.location)


def test_what_others_have_in_hand_is_left(root: Location) -> None:
    made, dataset = run_on(5, root, "retrain")
    number = register(made, root)
    ModelRecord(root).note(NAME, Change(retired=(number,), reason="old"))
    found = unused(root, URI)
    with Leases(root / "claims").hold(f"dataset-{dataset.attributes['recipe']}"):
        assert places(free(found, root, URI)) == {f"weights {made.identity}"}
    open_dataset(dataset.location)
    assert places(free(unused(root, URI), root, URI)) == {f"dataset {dataset.location.name}"}


def test_a_dataset_that_is_half_removed_is_never_read_and_is_made_again(
    root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, dataset = run_on(5, root, "retrain")
    number = register(made, root)
    ModelRecord(root).note(NAME, Change(retired=(number,), reason="old"))
    found = [each for each in unused(root, URI) if each.kind == "dataset"]
    before = dataset.part("train", ["initial"])[:]["initial"]
    removals: list[Location] = []

    class Killed(BaseException):
        pass

    def remove(place: Location) -> None:
        removals.append(place)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Location, "remove", remove)
        with pytest.raises(Killed):
            free(found, root, URI)
    assert removals
    with pytest.raises(DatasetIncomplete):
        open_dataset(dataset.location)
    again = generated(made.data, root)
    assert (again.part("train", ["initial"])[:]["initial"] == before).all()


def test_a_dataset_that_no_run_is_of_is_shown_unless_a_preset_is(root: Location) -> None:
    made = cell("burgers", "fno", **PARAMETERS)
    lonely = generated(replace(made.data, n_train=3, n_validation=1, n_test=2), root)
    (found,) = unused(root, URI)
    assert found.place == lonely.location
    assert found.why == "no run is of it"
    assert unused(root, URI, "burgers", retrained_only=True) == []
    json.dumps([found.to_plain()])
