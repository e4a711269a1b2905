"""Meshes that other programs wrote: fields are listed right, and said to stand where they do.

`openfoam_cavity.tar.xz` is a driven cavity of 5 x 4 cells: OpenFOAM 1912 made its mesh, its times
and its parts (blockMesh, icoFoam, decomposePar). `whole` is text, `parts` is binary and in two.
"""

import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.fields.array import FieldArray
from storage.fields.files import FORMATS, open_arrays

pv = pytest.importorskip("pyvista", reason="pyvista is not installed (extra `mesh`)")

TIMES = ("0", "0.1", "0.2")


def brought_files() -> list[Path]:
    folder = Path(pv.examples.__file__).parent
    return sorted(path for path in folder.iterdir() if path.suffix in FORMATS)


def test_pyvista_brings_meshes_of_its_own() -> None:
    names = {path.name for path in brought_files()}
    assert names >= {"hexbeam.vtk", "rectilinear.vtk", "uniform.vtk", "channels.vti"}


@pytest.mark.parametrize("path", brought_files(), ids=lambda path: path.name)
def test_fields_of_what_pyvista_brings_stand_where_pyvista_has_them(path: Path) -> None:
    mesh, arrays = pv.read(path), open_arrays(path)
    held = {"point": mesh.point_data, "cell": mesh.cell_data, "": mesh.field_data}
    wanted = {
        (name, place, np.shape(values))
        for place, data in held.items()
        for name, values in data.items()
    }
    fields = {name: arrays[name] for name in arrays if "@" not in name and name not in "xyz"}
    assert {(name, array.place, array.shape) for name, array in fields.items()} == wanted
    for name, array in fields.items():
        if np.prod(array.shape) < 100_000:
            assert np.array_equal(np.asarray(array[...]), held[array.place][name]), name


@pytest.fixture(scope="module")
def cavity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cavity")
    with tarfile.open(Path(__file__).with_name("openfoam_cavity.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return folder


def text_of(case: Path, time: str, name: str) -> Any:
    """Return the values in the cells, as the text of an OpenFOAM field has them."""
    text = (case / time / name).read_text()
    found = re.search(r"internalField\s+nonuniform List<\w+>\s*\d+\s*\((.*?)\n\)\s*;", text, re.S)
    if found is None:
        return 0.0  # uniform
    rows = found[1].replace("(", " ").replace(")", " ").strip().splitlines()
    return np.array([np.fromstring(row, sep=" ") for row in rows]).squeeze()


def test_a_case_that_openfoam_wrote_has_its_fields_in_cells(cavity: Path) -> None:
    arrays = open_arrays(cavity / "whole" / "system" / "controlDict")
    fields = {n: (a.shape, a.place, a.axes) for n, a in arrays.items() if "@" not in n}
    assert fields == {
        "p": ((3, 20), "cell", ("time", "point")),
        "U": ((3, 20, 3), "cell", ("time", "point", "component")),
        **dict.fromkeys("xyz", ((60,), "point", ("point",))),
    }
    for number, time in enumerate(TIMES):
        for name in ("p", "U"):
            written = text_of(cavity / "whole", time, name)
            assert np.allclose(arrays[name][number], written, atol=1e-6), (name, time)
    assert np.abs(arrays["p"][2]).max() > 0.5


def test_a_case_in_parts_is_the_whole_one(cavity: Path) -> None:
    def by_place(arrays: dict[str, FieldArray]) -> tuple[Any, Any]:
        x, y = (np.asarray(arrays[f"{axis}@cells"][...]).round(6) for axis in "xy")
        order = np.lexsort((x, y))
        return np.asarray(arrays["p"][...])[:, order], np.asarray(arrays["U"][...])[:, order]

    whole, parts = (
        by_place(dict(open_arrays(cavity / name / "system" / "controlDict")))
        for name in ("whole", "parts")
    )
    for one, other in zip(whole, parts, strict=True):
        assert np.allclose(one, other, atol=1e-6)
