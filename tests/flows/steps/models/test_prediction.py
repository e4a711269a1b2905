from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from flows.errors import BadInput
from flows.steps.models.champions import promote
from flows.steps.models.packaging import package, trained_run
from flows.steps.models.prediction import Outputs, find_model, predict_file
from flows.steps.models.registration import register_run, registered_models
from storage.location import Location
from tests.flows.steps.trained_runs import cell, random_samples, write_run
from tests.storage.tracking.mlflow_server import record_run

GRIDS = {
    "burgers": {"resolution": 32},
    "elasticity_p": {},
    "plasticity": {},
    "airfoil": {},
    "pipe": {},
    "navier_stokes": {"resolution": 16},
}


@pytest.fixture
def root(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path / "store"))


def database(folder: Path) -> str:
    return f"sqlite:///{folder}/mlflow.db"


def predicted(model: str, source: Path, root: Location, **outputs: Path) -> dict[str, Any]:
    places = {"fields": source.with_name("predicted.npz"), **outputs}
    return predict_file(model, source, Outputs(**places), root, database(source.parent))


@pytest.mark.parametrize("name", GRIDS)
def test_fields_pictures_and_meshes_of_every_geometry(
    name: str, root: Location, tmp_path: Path
) -> None:
    made = cell(name, "fno", **GRIDS[name])
    write_run(made, root)
    samples = random_samples(made.data.benchmark, seed=3)
    np.savez(tmp_path / "given.npz", **samples)
    told = predicted(
        made.identity,
        tmp_path / "given.npz",
        root,
        fields=tmp_path / "predicted.nc",
        plot=tmp_path / "picture.svg",
        vtk=tmp_path / "mesh.vtk",
    )
    expected = trained_run(made.identity, root).predictor(samples)
    with xr.open_dataset(tmp_path / "predicted.nc", engine="scipy", decode_times=False) as file:
        for target, values in expected.items():
            assert np.array_equal(file[target].values, values)
            assert file[target].dims[0] == "sample"
        assert file.attrs["identity"] == made.identity
    (target,) = expected
    truth = samples[target].reshape(3, -1)
    errors = np.linalg.norm(expected[target].reshape(3, -1) - truth, axis=1)
    assert told["rel_l2"] == pytest.approx(errors / np.linalg.norm(truth, axis=1), rel=1e-5)
    picture = (tmp_path / "picture.svg").read_text()
    assert picture.startswith("<svg")
    assert ("x [m" in picture) == any(v.unit in ("m", "mm") for v in made.data.benchmark.variables)
    n_frames = 16 if name == "plasticity" else 1
    assert len(told["vtk"]) == 3 * n_frames
    kind = b"POLYDATA" if name == "elasticity_p" else b"STRUCTURED_GRID"
    content = Path(told["vtk"][0]).read_bytes()
    assert b"DATASET " + kind in content
    assert target.encode() in content


def test_the_deformed_block_moves_from_frame_to_frame(root: Location, tmp_path: Path) -> None:
    made = cell("plasticity", "fno")
    write_run(made, root)
    np.savez(tmp_path / "given.npz", die=random_samples(made.data.benchmark)["die"][0])
    told = predicted(made.identity, tmp_path / "given.npz", root, vtk=tmp_path / "block.vtk")
    assert [Path(path).name for path in told["vtk"]] == [f"block_{i:02d}.vtk" for i in range(16)]
    state = np.load(tmp_path / "predicted.npz")["state"][0]
    for frame in (0, 15):
        content = Path(told["vtk"][frame]).read_bytes()
        start = content.index(b"float\n") + 6
        points = np.frombuffer(content, ">f4", 3 * 21 * 7, start).reshape(21, 7, 3)
        assert np.allclose(points[..., 0], state[:, :, frame, 0])
        assert np.allclose(points[..., 1], state[:, :, frame, 1])


@pytest.mark.parametrize("n_points", [64, 50])
def test_a_model_predicts_and_draws_at_another_grid(
    n_points: int, root: Location, tmp_path: Path
) -> None:
    made = cell("burgers", "fno", resolution=32)
    write_run(made, root)
    # The benchmark has a grid of 64 points and none of 50.
    np.savez(tmp_path / "given.npz", initial=np.sin(np.linspace(0, 6, n_points)))
    told = predicted(
        made.identity[:6],
        tmp_path / "given.npz",
        root,
        plot=tmp_path / "picture.svg",
        vtk=tmp_path / "line.vtk",
    )
    assert (told["samples"], told["grid"], told["rel_l2"]) == (1, {"x": n_points}, None)
    assert np.load(tmp_path / "predicted.npz")["final"].shape == (1, n_points)
    assert "predicted by fno" in (tmp_path / "picture.svg").read_text()
    assert told["vtk"] == [str(tmp_path / "line.vtk")]


def test_wrong_inputs_are_told_in_a_sentence(root: Location, tmp_path: Path) -> None:
    made = cell("pipe", "fno")
    write_run(made, root)
    source = tmp_path / "given.npz"
    mesh = np.ones((2, 17, 17), np.float32)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"mesh_x": mesh}, "no variable mesh_y, it holds mesh_x"),
        ({"mesh_x": mesh, "mesh_y": mesh[:, :16]}, "2 x 16 x 17, expected 2 samples of 17 x 17"),
        ({"mesh_x": mesh, "mesh_y": mesh[0]}, "has 2 axes, expected 3: sample x x x y"),
        ({"mesh_x": mesh, "mesh_y": np.full_like(mesh, np.inf)}, "578 values of NaN or infinity"),
        ({"mesh_x": mesh, "mesh_y": mesh.astype(str)}, "expected real numbers"),
    ]
    for arrays, sentence in cases:
        np.savez(source, **arrays)
        with pytest.raises(BadInput, match=sentence):
            predicted(made.identity, source, root)
        assert not (tmp_path / "predicted.npz").exists()


def test_impossible_outputs_are_refused_before_any_work(root: Location, tmp_path: Path) -> None:
    for outputs, sentence in (
        ({"fields": tmp_path / "out.txt"}, "expected one of .zarr, .nc, .npz, .mat"),
        ({"plot": tmp_path / "picture.png"}, "expected .svg"),
        ({"vtk": tmp_path / "mesh.stl"}, "expected .vtk"),
    ):
        with pytest.raises(BadInput, match=sentence):
            predicted("no model at all", tmp_path / "given.npz", root, **outputs)


def test_a_model_that_is_none_is_said(root: Location, tmp_path: Path) -> None:
    for text in ("0123", "", str(tmp_path)):
        with pytest.raises(BadInput, match="names no model, it is none of these"):
            find_model(text, root, database(tmp_path))


def test_run_folder_and_registry_lead_to_the_same_model(root: Location, tmp_path: Path) -> None:
    uri = database(tmp_path)
    runs = [cell("burgers", "fno", seed, resolution=32) for seed in (0, 1)]
    for made in runs:
        write_run(made, root)
        record_run(uri, tmp_path, made.identity)
    first = register_run(runs[0].identity, root, uri)
    second = register_run(runs[1].identity, root, uri, alias="challenger")
    assert (first.aliases, second.aliases) == (("champion", "champion-smoke"), ("challenger",))
    assert first.tags["dataset"] == "d" * 64
    assert first.tags["test/rel_l2"] == "0.25"
    assert [(m["number"], m["name"]) for m in registered_models(root, uri)] == [
        (2, "pde-burgers"),
        (1, "pde-burgers"),
    ]
    folder = package(trained_run(runs[1].identity, root), tmp_path / "folder")
    inputs = random_samples(runs[0].data.benchmark, seed=9)
    expected = trained_run(runs[1].identity, root).predictor(inputs)["final"]
    for text in ("pde-burgers@challenger", "pde-burgers/2", str(folder), runs[1].identity):
        found = find_model(text, root, uri)
        assert found.facts["identity"] == runs[1].identity
        assert np.array_equal(found.predictor(inputs)["final"], expected)
    champion = find_model("pde-burgers@champion", root, uri)
    assert champion.facts["identity"] == runs[0].identity
    promoted = promote("pde-burgers@challenger", "better", root, uri)
    assert promoted.aliases == ("champion", "champion-smoke")
    assert find_model("pde-burgers@champion", root, uri).facts["identity"] == runs[1].identity
    # Whoever has the tracking store alone, or removed the run, gets MLflow's copy.
    (root / "checkpoints" / runs[1].identity).remove()
    copied = find_model("pde-burgers@champion", root, uri)
    assert np.array_equal(copied.predictor(inputs)["final"], expected)
