"""A folder of meshes with differing points: ingested, trained on, predicted and written back."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flows.cli.main import main
from flows.errors import BadInput
from flows.steps.data.added_samples import held_out, take_in
from flows.steps.data.datasets import location_of, plan_generation
from flows.steps.data.file_arrays import files_of
from flows.steps.data.given import problem_named
from flows.steps.data.guessing import Wishes, guessed
from flows.steps.data.ingestion import keep_problem, plan_ingestion
from flows.steps.models.prediction import Outputs, predict_file
from flows.steps.training.cells import cell
from flows.steps.training.fields import part_of
from flows.steps.training.run import train
from flows.steps.training.workplace import Workplace
from lsm_core.benchmarks.given import WEIGHT
from lsm_core.experiments.plans import extended
from lsm_core.reporting.tables import target_table
from storage.datasets.reader import open_dataset
from storage.location import Location

pv = pytest.importorskip("pyvista", reason="pyvista is not installed (extra `mesh`)")


def plate(path: Path, number: int) -> Path:
    """Write a bent plate whose triangles differ in number."""
    random = np.random.default_rng(number)
    size, load = 5 + number % 3, float(random.uniform(0.5, 2))
    mesh = pv.Plane(i_resolution=size, j_resolution=size).triangulate().cast_to_unstructured_grid()
    mesh.clear_data()
    points = mesh.points.copy()
    points[:, 1] += 0.2 * load * np.sin(3 * points[:, 0])
    mesh.points = points
    mesh.point_data["u"] = np.sin(3 * load * points[:, 0])
    mesh.cell_data["q"] = mesh.cell_centers().points[:, 0] * load
    mesh.field_data["load"] = [load]
    mesh.field_data["drag"] = [1e-3 * load**2]
    mesh.save(path)
    os.utime(path, (1, 1))
    return path


@pytest.fixture(scope="module")
def plates(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a folder of meshes, the store they are in, and a run on them."""
    home = tmp_path_factory.mktemp("plates")
    folder = home / "meshes"
    folder.mkdir()
    for number in range(12):
        plate(folder / f"{number:02d}.vtu", number)
    root, said = Location.parse(str(home / "store")), list[str]()
    files = files_of([folder])
    wishes = Wishes(inputs=("load", "q"), targets=("u", "drag"))
    job = plan_ingestion(guessed("plates", files, wishes, said.append), files, root)
    for index in job.begin():
        job.ingest_block(index)
    keep_problem(job, root)
    made = cell("smoke", problem_named("plates", root), "transolver")
    place = Workplace(
        root=root,
        dataset=location_of(made.data, root),
        tracking_uri=f"sqlite:///{home}/mlflow.db",
        study="benchmark",
        n_threads=1,
    )
    result = train(made, place, lambda message: None)
    return SimpleNamespace(
        folder=folder,
        root=root,
        said=said,
        job=job,
        cell=made,
        result=result,
        uri=place.tracking_uri,
    )


def test_what_becomes_of_cell_data_is_said(plates: Any) -> None:
    assert "u, drag: values stand at points" in plates.said
    assert "q stands in cells and is averaged to the points" in plates.said
    assert "z is the same everywhere and left out" in plates.said


def test_points_count_by_their_volume(plates: Any) -> None:
    dataset = open_dataset(plates.job.location)
    part = part_of(dataset, plates.job.problem, "train")[:]
    n_real = (part[WEIGHT] > 0).sum(1)
    assert len(set(n_real.tolist())) > 1
    assert np.allclose(part[WEIGHT].sum(1), n_real, rtol=1e-4)
    assert part[WEIGHT][0].max() > 2 * part[WEIGHT][0][part[WEIGHT][0] > 0].min()


def test_a_folder_of_meshes_comes_back_with_fields_that_pyvista_opens(
    plates: Any, tmp_path: Path
) -> None:
    out, plot = tmp_path / "out", tmp_path / "plates.svg"
    outputs = Outputs(fields=out, plot=plot)
    done = predict_file(plates.cell.identity, plates.folder, outputs, plates.root, plates.uri)
    assert done["samples"] == 12
    assert len(done["rel_l2"]) == 12
    for number in range(12):
        source, back = (pv.read(f / f"{number:02d}.vtu") for f in (plates.folder, out))
        assert back.n_points == source.n_points
        assert np.allclose(back.point_data["u"], source.point_data["u"])
        assert back.point_data["u_predicted"].shape == (source.n_points,)
        assert back.field_data["drag_predicted"].shape == (1,)
    assert np.isfinite([numbers["drag"] for numbers in done["numbers"]]).all()
    assert plot.read_text().startswith("<svg")


def test_a_mesh_without_the_truth_is_predicted_too(plates: Any, tmp_path: Path) -> None:
    mesh = pv.read(plates.folder / "03.vtu")
    del mesh.point_data["u"]
    mesh.save(tmp_path / "new.vtu")
    outputs = Outputs(fields=tmp_path / "out.vtu", plot=tmp_path / "out.svg")
    done = predict_file(
        plates.cell.identity, tmp_path / "new.vtu", outputs, plates.root, plates.uri
    )
    assert done["rel_l2"] is None
    assert "u_predicted" in pv.read(tmp_path / "out.vtu").point_data
    outputs = Outputs(fields=tmp_path / "out.cgns")
    with pytest.raises(BadInput, match=r"in which no mesh can be written; take one of \.vtu"):
        predict_file(plates.cell.identity, tmp_path / "new.vtu", outputs, plates.root, plates.uri)


def test_the_errors_that_are_kept_are_those_of_the_files(plates: Any, tmp_path: Path) -> None:
    outputs = Outputs(fields=tmp_path / "out")
    done = predict_file(plates.cell.identity, plates.folder, outputs, plates.root, plates.uri)
    n_test = plates.job.schema.split_sizes["test"]
    tested = [done["rel_l2"][place.file] for place in plates.job.order[-n_test:]]
    assert np.mean(tested) == pytest.approx(plates.result.test["rel_l2"], rel=0.05)


def test_numbers_are_reported_beside_fields(plates: Any) -> None:
    table = target_table([plates.result])
    assert table is not None
    assert table.headings == ("model", "seed", "u", "drag")
    assert all(float(figure) > 0 for figure in table.rows[0][2:])


def test_new_meshes_in_a_watched_folder_extend_the_data(plates: Any, tmp_path: Path) -> None:
    for number in range(20, 26):
        plate(tmp_path / f"{number}.vtu", number)
    large = pv.Plane(i_resolution=30, j_resolution=30).triangulate().cast_to_unstructured_grid()
    for name, value in {"load": [1.0], "drag": [1e-3]}.items():
        large.field_data[name] = value
    large.point_data["u"] = large.points[:, 0]
    large.cell_data["q"] = np.ones(large.n_cells)
    large.save(tmp_path / "large.vtu")
    os.utime(tmp_path / "large.vtu", (1, 1))
    problem = plates.job.problem
    intake = take_in(tmp_path, problem, plates.root)
    assert len(intake.taken) == 6
    assert "961 points, where the longest so far has 64" in intake.left["large.vtu"]
    n_trained = sum(each.n_samples for each in intake.taken)
    assert len(held_out(intake.taken, problem, plates.root)["u"]) == 6 - n_trained
    plan = extended(plates.cell.data, intake.taken)
    generation = plan_generation(plan, plates.root)
    for index in generation.begin():
        generation.generate_block(index)
    generation.finish()
    part = part_of(open_dataset(generation.location), problem, "train")[:]
    assert len(part["u"]) == plates.cell.data.n_train + n_trained
    assert np.isfinite(part[WEIGHT]).all()
    assert (part[WEIGHT] > 0).any(1).all()


def test_arrays_in_files_of_their_own_are_answered_by_one_beside_them(tmp_path: Path) -> None:
    folder, random = tmp_path / "arrays", np.random.default_rng(0)
    folder.mkdir()
    snapshots = random.random((20, 2, 14))
    np.save(folder / "snapshots.npy", snapshots.reshape(20, 28))
    np.save(folder / "coords.npy", random.random((2, 14)))
    np.save(folder / "params.npy", random.random((20, 3)))
    root, files = Location.parse(str(tmp_path / "store")), files_of([folder])
    job = plan_ingestion(guessed("arrays", files, Wishes(targets=("snapshots",))), files, root)
    for index in job.begin():
        job.ingest_block(index)
    keep_problem(job, root)
    made = cell("smoke", problem_named("arrays", root), "pod_rbf")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    place = Workplace(
        root=root,
        dataset=location_of(made.data, root),
        tracking_uri=uri,
        study="benchmark",
        n_threads=1,
    )
    train(made, place, lambda message: None)
    done = predict_file(made.identity, folder, Outputs(fields=tmp_path / "out"), root, uri)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["snapshots_predicted.npy"]
    predicted = np.load(tmp_path / "out" / "snapshots_predicted.npy")
    assert predicted.shape == (20, 14, 2)
    truth = np.moveaxis(snapshots, 1, 2)
    off = [np.linalg.norm(p - t) / np.linalg.norm(t) for p, t in zip(predicted, truth, strict=True)]
    assert np.allclose(done["rel_l2"], off, rtol=1e-4)


def test_no_seed_makes_a_sample_of_what_was_given(
    plates: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LSM_STORE", plates.root.url)
    assert main(["predict", plates.result.identity, "--seed", "3"]) == 2
    assert "were given" in capsys.readouterr().err
