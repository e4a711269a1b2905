"""Files in a watched folder, real ones in every format, on their way into a dataset."""

import os
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from flows.errors import BadInput
from flows.steps.data import datasets
from flows.steps.data.added_samples import (
    SETTLED_SECONDS,
    held_out,
    shift_of,
    take_in,
    training_profile,
)
from lsm_core.benchmarks.burgers import Burgers
from lsm_core.experiments.plans import DataPlan, extended
from storage.fields.files import write_fields
from storage.location import Location
from tests.flows.steps.data.generation import generated

PROBLEM = Burgers(resolution=32, solver_points=64, solver_steps=20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "watched"
    made.mkdir()
    return made


@pytest.fixture
def root(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path / "store"))


def samples(seed: int, n_samples: int = 3, n_points: int = 32) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        name: random.random((n_samples, n_points), dtype=np.float32)
        for name in ("initial", "final")
    }


def put(path: Path, arrays: dict[str, np.ndarray], age: float = 2 * SETTLED_SECONDS) -> None:
    """Write a file that has not changed for a while."""
    write_fields(path, xr.Dataset({k: (("sample", "x"), v) for k, v in arrays.items()}))
    make_older(path, age)


def make_older(path: Path, age: float) -> None:
    for each in [*path.rglob("*"), path]:
        then = each.stat().st_mtime - age
        os.utime(each, (then, then))


@pytest.mark.parametrize("ending", ["npz", "mat", "nc", "zarr"])
def test_a_file_of_any_format_becomes_training_samples(
    ending: str, folder: Path, root: Location
) -> None:
    put(folder / f"measured.{ending}", samples(7))
    intake = take_in(folder, PROBLEM, root)
    assert intake.left == {}
    (added,) = intake.taken
    assert added.n_samples == 3
    plain = DataPlan(benchmark=PROBLEM, n_train=2, n_validation=1, n_test=2, samples_per_block=3)
    plan = extended(plain, intake.taken)
    assert generated(plan, root).part("train", ["seed"])[:]["seed"].tolist() == [0, 1, -1, -1, -1]
    found = generated(plan, root).part("train", ["initial", "final"])[2:5]
    for name, values in samples(7).items():
        np.testing.assert_array_equal(found[name], values)
    # Nobody is measured on other samples than before.
    for part in ("validation", "test"):
        both = (generated(each, root).part(part, ["initial", "final"])[:] for each in (plain, plan))
        np.testing.assert_equal(*both)


def test_one_content_counts_once_and_another_extends(folder: Path, root: Location) -> None:
    put(folder / "a.npz", samples(1))
    (first,) = take_in(folder, PROBLEM, root).taken
    (folder / "copy.npz").write_bytes((folder / "a.npz").read_bytes())
    make_older(folder / "copy.npz", 2 * SETTLED_SECONDS)
    put(folder / "b.npz", samples(2, n_samples=2))
    again = take_in(folder, PROBLEM, root).taken
    assert again[0] == first
    assert [each.n_samples for each in again] == [3, 2]
    plan = DataPlan(benchmark=PROBLEM, n_train=2, n_validation=1, n_test=1)
    recipes = {datasets.schema_of(extended(plan, added)).recipe for added in ((), (first,), again)}
    assert len(recipes) == 3
    assert datasets.schema_of(extended(plan, ())).recipe == datasets.schema_of(plan).recipe


def test_a_file_that_is_still_copied_is_left_for_the_next_time(
    folder: Path, root: Location
) -> None:
    whole = folder / "whole.npz"
    put(whole, samples(1))
    (folder / "half.npz").write_bytes(whole.read_bytes()[:-40])
    make_older(folder / "half.npz", 2 * SETTLED_SECONDS)
    put(folder / "growing.npz", samples(2), age=0.0)
    put(folder / ".hidden.npz", samples(3))
    (folder / "notes.txt").write_text("not samples")
    intake = take_in(folder, PROBLEM, root)
    assert len(intake.taken) == 1
    assert set(intake.left) == {"half.npz", "growing.npz"}
    assert "cannot be read" in intake.left["half.npz"]
    assert "may not be whole" in intake.left["growing.npz"]
    put(folder / "half.npz", samples(4))
    make_older(folder / "growing.npz", 2 * SETTLED_SECONDS)
    assert len(take_in(folder, PROBLEM, root).taken) == 3


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"initial": samples(1)["initial"]}, "has no variable final"),
        (samples(1, n_points=16), "shape (16,), expected (32,)"),
        (samples(1) | {"final": samples(1, n_samples=2)["final"]}, "different numbers of samples"),
        (samples(1) | {"final": np.full((3, 32), np.nan)}, "no numbers"),
    ],
)
def test_a_file_that_does_not_suit_is_left_with_the_reason(
    arrays: dict[str, np.ndarray], said: str, folder: Path, root: Location
) -> None:
    np.savez(folder / "wrong.npz", **arrays)
    make_older(folder / "wrong.npz", 2 * SETTLED_SECONDS)
    intake = take_in(folder, PROBLEM, root)
    assert intake.taken == ()
    assert list(intake.left) == ["wrong.npz"]
    assert said in intake.left["wrong.npz"]


def test_every_fifth_sample_is_held_out(folder: Path, root: Location) -> None:
    put(folder / "many.npz", samples(5, n_samples=11))
    intake = take_in(folder, PROBLEM, root)
    assert [each.n_samples for each in intake.taken] == [9]
    assert take_in(folder, PROBLEM, root).taken == intake.taken
    plan = DataPlan(benchmark=PROBLEM, n_train=2, n_validation=1, n_test=1)
    trained_on = generated(extended(plan, intake.taken), root).part("train", ["initial"])[2:]
    aside = held_out(intake.taken, PROBLEM, root)
    given = samples(5, n_samples=11)["initial"]
    np.testing.assert_array_equal(aside["initial"], given[[4, 9]])
    left = np.delete(given, [4, 9], axis=0)
    np.testing.assert_array_equal(trained_on["initial"], left)
    assert held_out((), PROBLEM, root)["initial"].shape == (0, 32)


def test_files_are_compared_with_the_training_samples(folder: Path, root: Location) -> None:
    plan = DataPlan(benchmark=PROBLEM, n_train=12, n_validation=1, n_test=1)
    dataset = generated(plan, root)
    known = training_profile(dataset, PROBLEM)
    fine = dataset.part("train", ["initial", "final"])[:5]
    put(folder / "centimetres.npz", {name: 100 * values for name, values in fine.items()})
    put(folder / "fine.npz", fine)
    put(folder / "lifted.npz", {name: values + 0.9 for name, values in fine.items()})
    intake = take_in(folder, PROBLEM, root, known)
    assert len(intake.taken) == 2
    assert list(intake.left) == ["centimetres.npz"]
    assert "its unit seems to be another one" in intake.left["centimetres.npz"]
    told = [shift_of([each], PROBLEM, root, known) for each in intake.taken]
    assert [bool(each) for each in told] == [False, True]
    assert "the mean of final is 0.9 instead of" in told[1]
    assert shift_of([], PROBLEM, root, known) == ""


def test_a_folder_that_is_not_there_is_said(tmp_path: Path, root: Location) -> None:
    with pytest.raises(BadInput, match="is not there"):
        take_in(tmp_path / "nowhere", PROBLEM, root)
