"""Files that people bring: guessed, checked, written, and known by their name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.errors import BadInput
from flows.steps.data.declaration import Declaration, Splits, read_declaration
from flows.steps.data.file_arrays import files_of
from flows.steps.data.given import given_names, given_plan, problem_named
from flows.steps.data.guessing import Wishes, guessed
from flows.steps.data.ingestion import Ingestion, keep_problem, plan_ingestion
from flows.steps.data.unused import unused
from flows.steps.training.fields import part_of, split_fields
from lsm_core.benchmarks.given import WEIGHT
from lsm_core.experiments.presets import experiment
from lsm_core.experiments.protocols import plan_from_plain
from lsm_core.training.config import TrainingConfig
from storage.datasets.reader import open_dataset
from storage.location import Location

RANDOM = np.random.default_rng(0)


def ingested(tmp_path: Path, *files: Path, name: str = "mine", **wishes: Any) -> Ingestion:
    found = files_of(files)
    root = Location.parse(str(tmp_path / "store"))
    job = plan_ingestion(guessed(name, found, Wishes(**wishes)), found, root)
    for index in job.begin():
        job.ingest_block(index)
    keep_problem(job, root)
    return job


def grids(path: Path, n: int = 20, seed: int = 0) -> Path:
    random = np.random.default_rng(seed)
    np.savez(path, a=random.random((n, 8, 6)), u=random.random((n, 8, 6)), k=random.random((n, 2)))
    return path


def clouds(folder: Path, n: int = 12) -> Path:
    folder.mkdir()
    for number in range(n):
        x, y = RANDOM.random((2, 10 + number))
        rows = [f"{a},{b},{a + number * b},{number}" for a, b in zip(x, y, strict=True)]
        (folder / f"{number:02d}.csv").write_text("x,y,p [Pa],load\n" + "\n".join(rows))
    return folder


def test_a_regular_grid_is_guessed_and_written_with_all_that_it_rests_on(tmp_path: Path) -> None:
    job = ingested(tmp_path, grids(tmp_path / "f.npz"), inputs=("a", "k"))
    dataset = open_dataset(job.location)
    assert dataset.attributes["split_sizes"] == {"train": 16, "validation": 2, "test": 2}
    assert dataset.provenance["kind"] == "given"
    assert len(dataset.provenance["files"][0]["sha256"]) == 64
    with np.load(tmp_path / "f.npz") as file:
        place = job.order[0]
        assert np.allclose(dataset.part("train", ["u"])[0]["u"], file["u"][place.row])
    assert [(v.name, v.dims) for v in job.problem.arrays] == [
        ("a", ("x", "y")),
        ("k", ("component",)),
        ("u", ("x", "y")),
    ]


def test_a_name_means_its_problem_from_then_on(tmp_path: Path) -> None:
    ingested(tmp_path, grids(tmp_path / "f.npz"), inputs=("a", "k"))
    root = Location.parse(str(tmp_path / "store"))
    assert given_names(root) == ["mine"]
    made = experiment("smoke", problem_named("mine", root), "fno")
    again = plan_from_plain(made.to_plain()["data"], "smoke")
    assert again == made.data
    assert made.data.origin == "given"
    with pytest.raises(BadInput, match=r"invalid choice: 'other'.*mine.*lsm ingest"):
        problem_named("other", root)


def test_points_that_differ_in_number_get_weights(tmp_path: Path) -> None:
    job = ingested(tmp_path, clouds(tmp_path / "clouds"), targets=("p",))
    assert job.problem.has_weight
    assert job.problem.shape.space == (21,)
    assert [v.unit for v in job.problem.with_role("target")] == ["Pa"]
    dataset = open_dataset(job.location)
    for place, weight in zip(job.order, dataset.arrays([WEIGHT])[WEIGHT][...], strict=True):
        assert (weight > 0).sum() == 10 + place.file
        assert (weight[: 10 + place.file] > 0).all()
    root = Location.parse(str(tmp_path / "store"))
    with pytest.raises(ValueError, match="ridge needs the same points in every sample"):
        experiment("smoke", problem_named("mine", root), "ridge")
    fields = split_fields(dataset, job.problem, TrainingConfig(batch_size=4), 0, 2**20)
    batch = next(fields.batches.epoch(0))
    assert batch.weights is not None
    assert batch.weights.shape == batch.inputs.shape[:2]
    assert len(part_of(dataset, job.problem, "test")) == 1


def test_a_killed_ingestion_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    files = files_of([grids(tmp_path / "f.npz", 200)])
    declaration = guessed("mine", files, Wishes(inputs=("a", "k")))
    digests = []
    for name, first in (("one", []), ("two", [2, 0])):
        root = Location.parse(str(tmp_path / name))
        job = plan_ingestion(declaration, files, root)
        job.begin()
        for index in first:
            job.ingest_block(index)
        for index in plan_ingestion(declaration, files, root).begin():
            job.ingest_block(index)
        keep_problem(job, root)
        digests.append(open_dataset(job.location).digest)
    assert digests[0] == digests[1]


def test_files_say_which_samples_are_tested(tmp_path: Path) -> None:
    train = grids(tmp_path / "train.npz", 30)
    test = grids(tmp_path / "test.npz", 7, seed=1)
    job = ingested(tmp_path, train, test, inputs=("a",))
    assert job.schema.split_sizes == {"train": 27, "validation": 3, "test": 7}


def test_a_column_says_which_samples_are_tested(tmp_path: Path) -> None:
    part = np.array([0, 0, 1, 2, 0, 2])
    np.savez(tmp_path / "f.npz", a=RANDOM.random((6, 5)), u=RANDOM.random((6, 5)), part=part)
    splits = Splits(by="column", column="part")
    job = ingested(tmp_path, tmp_path / "f.npz", inputs=("a",), splits=splits)
    assert [place.row for place in job.order] == [0, 1, 4, 2, 3, 5]


def test_what_is_shown_is_what_is_read_again(tmp_path: Path) -> None:
    declaration = guessed("mine", files_of([grids(tmp_path / "f.npz")]), Wishes(inputs=("a",)))
    (tmp_path / "mine.toml").write_text(declaration.to_toml())
    assert read_declaration(tmp_path / "mine.toml") == declaration
    assert Declaration.from_plain(declaration.to_plain()) == declaration


def test_nodes_and_components_stored_as_one_axis_are_told_apart(tmp_path: Path) -> None:
    values = RANDOM.random((9, 2, 14))
    np.save(tmp_path / "snapshots.npy", values.reshape(9, 28))
    np.save(tmp_path / "coords.npy", RANDOM.random((2, 14)))
    np.save(tmp_path / "params.npy", RANDOM.random((9, 4)))
    files = [tmp_path / f"{n}.npy" for n in ("snapshots", "coords", "params")]
    job = ingested(tmp_path, *files, targets=("snapshots",))
    stored = open_dataset(job.location).part("train", ["snapshots"])[0]["snapshots"]
    assert np.allclose(stored, values[job.order[0].row].T)
    assert job.problem.same_points
    opened = open_dataset(job.location).to_xarray()
    assert dict(opened["snapshots"].sizes) == {"sample": 9, "point": 14, "component": 2}
    assert dict(opened["params"].sizes) == {"sample": 9, "params_component": 4}


def test_frames_that_go_on_from_the_input_are_a_rollout(tmp_path: Path) -> None:
    frames = RANDOM.random((12, 5, 16))
    np.savez(tmp_path / "f.npz", x=frames[:, 0], y=frames)
    job = ingested(tmp_path, tmp_path / "f.npz")
    assert job.problem.n_steps == 4
    stored = open_dataset(job.location).part("train", ["y"])[0]["y"]
    assert np.allclose(stored, frames[job.order[0].row, 1:].T)


def written(tmp_path: Path, **changes: Any) -> Path:
    arrays = {"a": RANDOM.random((6, 5)), "u": RANDOM.random((6, 5)), **changes}
    np.savez(tmp_path / "f.npz", **arrays)
    return tmp_path / "f.npz"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"u": np.where(np.eye(6, 5), np.nan, 1.0)}, "has 1 values of NaN or infinity"),
        ({"a": np.ones((6, 5)), "u": np.ones((6, 5))}, "are the same sample, and 5 in all"),
        ({"a": RANDOM.random((7, 5))}, "a has 7 samples and u has 6"),
    ],
)
def test_what_is_wrong_with_files_is_one_sentence(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    axes = {"a": ("sample", "x"), "u": ("sample", "x")}
    with pytest.raises(BadInput, match=said):
        ingested(tmp_path, written(tmp_path, **changes), inputs=("a",), axes=axes)
    assert given_names(Location.parse(str(tmp_path / "store"))) == []


def test_units_that_disagree_and_files_that_lack_a_variable_are_said(tmp_path: Path) -> None:
    folder = clouds(tmp_path / "clouds")
    other = (folder / "03.csv").read_text().replace("[Pa]", "[bar]")
    (folder / "03.csv").write_text(other)
    with pytest.raises(BadInput, match=r"p is in Pa in 00.csv and in bar in 03.csv"):
        ingested(tmp_path, folder, targets=("p",))
    (folder / "03.csv").write_text(other.replace("p [bar]", "q"))
    with pytest.raises(BadInput, match=r"03.csv has no p, it holds x, y, q, load"):
        ingested(tmp_path, folder, targets=("p",))


def test_a_number_of_a_sample_is_a_target_beside_fields(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    fields = {"a": random.random((9, 8)), "u": 1e5 * random.random((9, 8))}
    np.savez(tmp_path / "f.npz", **fields, drag=0.01 * random.random(9))
    job = ingested(tmp_path, tmp_path / "f.npz", inputs=("a",), targets=("u", "drag"))
    u, drag = job.problem.with_role("target")
    assert (u.dims, u.unit) == (("x",), "100000")
    assert (drag.dims, drag.unit) == ((), "0.01")
    assert job.problem.shape.n_outputs == 2
    part = part_of(open_dataset(job.location), job.problem, "train")[0:1]
    row = job.order[0].row
    with np.load(tmp_path / "f.npz") as file:
        assert part["drag"][0] == pytest.approx(file["drag"][row] / 0.01, rel=1e-5)


def test_what_cannot_be_guessed_is_asked_for_with_what_there_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", one=RANDOM.random((6, 5)), two=RANDOM.random((6, 5)))
    with pytest.raises(BadInput, match=r"say what is to be predicted by --targets.*one 6x5"):
        ingested(tmp_path, tmp_path / "f.npz")


@pytest.mark.parametrize("name", ["darcy", "Blocks", "a", "two words", "../up"])
def test_a_name_that_cannot_be_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises((BadInput, ValueError), match=r"cannot be called|is a benchmark"):
        ingested(tmp_path, grids(tmp_path / "f.npz"), name=name, inputs=("a",))


def test_given_samples_keep_their_plan(tmp_path: Path) -> None:
    job = ingested(tmp_path, grids(tmp_path / "f.npz"), inputs=("a",))
    plan = given_plan("mine", Location.parse(str(tmp_path / "store")))
    assert plan.dataset == job.location.name
    assert plan.recipe == job.schema.recipe


def test_what_was_brought_is_never_freed_for_want_of_a_run(tmp_path: Path) -> None:
    job = ingested(tmp_path, grids(tmp_path / "f.npz"), inputs=("a",))
    root = Location.parse(str(tmp_path / "store"))
    found = unused(root, f"sqlite:///{tmp_path}/mlflow.db")
    assert job.location not in [each.place for each in found]
