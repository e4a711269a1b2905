"""Meshes as engineers keep them: what stands where, and what becomes of damaged files."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.errors import StorageError
from storage.fields import meshes
from storage.fields.files import open_arrays
from storage.fields.meshes import companions, write_mesh
from tests.storage.fuzzing import damaged

pv = pytest.importorskip("pyvista", reason="pyvista is not installed (extra `mesh`)")


def square(path: Path, size: int = 4) -> Path:
    """Write triangles of a unit square with values at points, in cells and of the whole."""
    mesh = pv.Plane(i_resolution=size, j_resolution=size).triangulate().cast_to_unstructured_grid()
    mesh.clear_data()
    mesh.point_data["u"] = 2 * mesh.points[:, 0]
    mesh.cell_data["q"] = np.arange(mesh.n_cells, dtype=float)
    mesh.cell_data["flux"] = np.ones((mesh.n_cells, 3))
    mesh.field_data["load"] = [7.0]
    mesh.save(path)
    return path


def test_values_are_told_by_where_they_stand(tmp_path: Path) -> None:
    arrays = open_arrays(square(tmp_path / "a.vtu"))
    found = {n: (a.shape, a.place) for n, a in arrays.items() if "@" not in n}
    assert found == {
        "u": ((25,), "point"),
        "q": ((32,), "cell"),
        "flux": ((32, 3), "cell"),
        "load": ((), ""),
        **dict.fromkeys("xyz", ((25,), "point")),
    }
    assert float(arrays["load"][...]) == 7
    assert np.allclose(arrays["u"][...], 2 * arrays["x"][...])


def test_cell_data_comes_to_points_and_point_data_to_centroids(tmp_path: Path) -> None:
    arrays = open_arrays(square(tmp_path / "a.vtu"))
    # A linear field at the corners of a triangle is, on average, its value at the centroid.
    assert np.allclose(arrays["u@cells"][...], 2 * arrays["x@cells"][...], atol=1e-6)
    assert arrays["q@points"].shape == (25,)
    assert np.allclose(arrays["flux@points"][...], 1)
    volumes = arrays["volume@cells"][...], arrays["volume@points"][...]
    assert [float(v.sum()) for v in volumes] == pytest.approx([1, 1])
    assert volumes[1].argmin() in (0, 4, 20, 24)  # a corner has the fewest cells


@pytest.mark.parametrize("ending", ["vtk", "vtp", "vts", "vtm"])
def test_every_kind_of_vtk_file_is_read(ending: str, tmp_path: Path) -> None:
    flat = pv.Plane(i_resolution=3, j_resolution=3)
    flat.clear_data()
    kinds = {
        "vtk": flat,
        "vtp": flat,
        "vts": pv.ImageData(dimensions=(4, 4, 1)).cast_to_structured_grid(),
        "vtm": pv.MultiBlock([flat, flat.outline()]),  # the second is a line around it
    }
    mesh = kinds[ending]
    for each in [mesh[0]] if ending == "vtm" else [mesh]:
        each.point_data["u"] = np.arange(16.0)
    mesh.save(tmp_path / f"a.{ending}")
    arrays = open_arrays(tmp_path / f"a.{ending}")
    assert arrays["u"].place == "point"
    assert np.allclose(arrays["u"][...], np.arange(16))
    assert bool(companions(tmp_path / f"a.{ending}")) == (ending == "vtm")


def write_openfoam(case: Path) -> Path:
    """Write a case of two unit cubes side by side, with two times."""
    head = "FoamFile {{ version 2.0; format ascii; class {0}; object {1}; }}\n"
    (case / "constant" / "polyMesh").mkdir(parents=True)
    (case / "system").mkdir()
    control = case / "system" / "controlDict"
    control.write_text(head.format("dictionary", "controlDict") + "startFrom startTime;\n")
    points = [(x, y, z) for z in (0, 1) for y in (0, 1) for x in (0, 1, 2)]
    faces = [(1, 4, 10, 7)]  # between the two
    faces += [(0, 6, 9, 3), (2, 5, 11, 8), (0, 1, 7, 6), (1, 2, 8, 7), (3, 9, 10, 4)]
    faces += [(4, 10, 11, 5), (0, 3, 4, 1), (1, 4, 5, 2), (6, 7, 10, 9), (7, 8, 11, 10)]
    owner = [0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]

    def listing(values: Any) -> str:
        return f"{len(values)}\n(\n" + "\n".join(map(str, values)) + "\n)\n"

    def vector(values: Any) -> str:
        return f"({' '.join(map(str, values))})"

    mesh = {
        "points": ("vectorField", listing([vector(p) for p in points])),
        "faces": ("faceList", listing([f"4{vector(f)}" for f in faces])),
        "owner": ("labelList", listing(owner)),
        "neighbour": ("labelList", listing([1])),
        "boundary": ("polyBoundaryMesh", "1\n(\nwalls { type wall; nFaces 10; startFace 1; }\n)\n"),
    }
    for name, (kind, text) in mesh.items():
        (case / "constant" / "polyMesh" / name).write_text(head.format(kind, name) + text)
    for time in ("0.5", "1"):
        (case / time).mkdir()
        scalars = listing([float(time), 2 * float(time)])
        (case / time / "p").write_text(
            head.format("volScalarField", "p") + "dimensions [0 2 -2 0 0 0 0];\n"
            f"internalField nonuniform List<scalar> {scalars};\n"
            "boundaryField { walls { type zeroGradient; } }\n"
        )
    return control


def test_an_openfoam_case_has_its_fields_in_cells_at_all_times(tmp_path: Path) -> None:
    control = write_openfoam(tmp_path / "case")
    arrays = open_arrays(control)
    assert (arrays["p"].shape, arrays["p"].place, arrays["p"].axes) == (
        (2, 2),
        "cell",
        ("time", "point"),
    )
    assert np.allclose(arrays["p"][...], [[0.5, 1], [1, 2]])
    assert np.allclose(arrays["x@cells"][...], [0.5, 1.5])
    assert np.allclose(arrays["volume@cells"][...], 1)
    assert tmp_path / "case" / "0.5" / "p" in companions(control)


def test_a_mesh_goes_out_as_it_came_with_fields_added(tmp_path: Path) -> None:
    source = square(tmp_path / "a.vtu")
    fields = {"v": np.arange(25.0), "w": np.ones((32, 3)), "drag": np.array([0.5])}
    write_mesh(source, tmp_path / "b.vtu", fields, {"v": "point", "w": "cell", "drag": ""})
    back = pv.read(tmp_path / "b.vtu")
    assert np.allclose(back.point_data["v"], np.arange(25))
    assert back.cell_data["w"].shape == (32, 3)
    assert np.allclose(back.point_data["u"], pv.read(source).point_data["u"])
    assert float(back.field_data["drag"][0]) == 0.5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.vtu", "b.vtu"]


def test_vtk_that_breaks_down_is_one_sentence_and_the_next_file_is_read(tmp_path: Path) -> None:
    source = square(tmp_path / "a.vtu")
    open_arrays(source)
    running = meshes._process().running
    assert running is not None
    running.kill()
    (tmp_path / "bad.vtu").write_bytes(source.read_bytes()[:300])
    with pytest.raises(StorageError, match=r"bad.vtu cannot be read"):
        open_arrays(tmp_path / "bad.vtu")
    assert "u" in open_arrays(source)


def test_without_pyvista_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = square(tmp_path / "a.vtu")
    monkeypatch.setattr(meshes, "find_spec", lambda name: None)
    monkeypatch.setattr(meshes, "_own", {})
    with pytest.raises(StorageError, match=r"install it: pip install 'lsm\[mesh\]'"):
        open_arrays(source)


def fuzz(folder: Path, n_inputs: int) -> int:
    """Read damaged meshes and return how many were refused; anything but our errors is raised."""
    kinds = {"vtu": square(folder / "a.vtu"), "vtk": square(folder / "a.vtk")}
    (folder / "case").mkdir()
    kinds["foam"] = write_openfoam(folder / "case" / "c").parents[1] / "0.5" / "p"
    n_refused = 0
    for number in range(n_inputs):
        chance = random.Random(f"mesh {number}")
        kind = chance.choice(list(kinds))
        victim = kinds[kind]
        whole = victim.read_bytes()
        victim.write_bytes(damaged(whole, chance))
        path = victim if kind != "foam" else folder / "case" / "c" / "system" / "controlDict"
        try:
            for array in open_arrays(path).values():
                np.asarray(array[...])
        except StorageError:
            n_refused += 1
        finally:
            victim.write_bytes(whole)
            meshes._listed.cache_clear()
    return n_refused


def test_damaged_meshes_are_refused_by_our_own_errors(tmp_path: Path) -> None:
    assert fuzz(tmp_path, 12) > 0


@pytest.mark.slow
def test_thousands_of_damaged_meshes_are_refused_by_our_own_errors(tmp_path: Path) -> None:
    assert fuzz(tmp_path, 3000) > 1000
