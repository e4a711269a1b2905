"""Files are read back by a parser of the format that shares nothing with the writer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.fields.vtk import write_vtk


class Reader:
    """Reads lines of text and blocks of numbers, as the format's description has them."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def words(self) -> list[str]:
        end = self.content.index(b"\n", self.place)
        line, self.place = self.content[self.place : end].decode("ascii"), end + 1
        return line.split()

    def numbers(self, count: int, dtype: str) -> np.ndarray:
        values = np.frombuffer(self.content, dtype, count, self.place)
        self.place += values.nbytes + 1
        assert self.content[self.place - 1 : self.place] == b"\n"
        return values


def read(path: Path) -> dict[str, Any]:
    reader = Reader(path.read_bytes())
    assert reader.words() == ["#", "vtk", "DataFile", "Version", "3.0"]
    found: dict[str, Any] = {"title": " ".join(reader.words())}
    assert reader.words() == ["BINARY"]
    found["kind"] = reader.words()[1]
    if found["kind"] == "STRUCTURED_GRID":
        found["dimensions"] = [int(word) for word in reader.words()[1:]]
    keyword, count, kind = reader.words()
    assert (keyword, kind) == ("POINTS", "float")
    found["points"] = reader.numbers(3 * int(count), ">f4").reshape(-1, 3)
    if found["kind"] == "POLYDATA":
        keyword, n_cells, size = reader.words()
        assert keyword == "VERTICES"
        found["cells"] = reader.numbers(int(size), ">i4").reshape(int(n_cells), 2)
    assert reader.words() == ["POINT_DATA", count]
    found["fields"] = {}
    for _ in range(int(reader.words()[2])):
        name, n_components, n_tuples, _kind = reader.words()
        total = int(n_components) * int(n_tuples)
        values = reader.numbers(total, ">f4").reshape(int(n_tuples), -1)
        found["fields"][name] = values
    assert reader.place == len(reader.content)
    return found


def test_a_mesh_keeps_every_value_at_its_position(tmp_path: Path) -> None:
    x, y = np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 2, 3), indexing="ij")
    x = x + 0.1 * y
    fields = {"speed": 10 * x + y, "two parts": np.stack([x, y], axis=-1)}
    write_vtk(tmp_path / "mesh.vtk", (x, y), fields, "a bent\nmesh")
    found = read(tmp_path / "mesh.vtk")
    assert (found["kind"], found["title"]) == ("STRUCTURED_GRID", "a bent mesh")
    assert found["dimensions"] == [3, 4, 1]
    points = found["points"]
    assert np.allclose(found["fields"]["speed"][:, 0], 10 * points[:, 0] + points[:, 1])
    assert np.allclose(found["fields"]["two_parts"], points[:, :2])
    # VTK's first index runs fastest: along it y changes, and x follows only by the shear.
    along = points.reshape(4, 3, 3)
    assert np.allclose(along[:, :, 1], y)
    assert np.allclose(along[:, :, 0], x)


def test_points_are_vertices(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).random((2, 5))
    write_vtk(tmp_path / "points.vtk", (x, y), {"stress": x - y}, "points")
    found = read(tmp_path / "points.vtk")
    assert found["kind"] == "POLYDATA"
    assert found["cells"].tolist() == [[1, i] for i in range(5)]
    assert np.allclose(found["points"], np.stack([x, y, 0 * x], axis=1))
    assert np.allclose(found["fields"]["stress"][:, 0], x - y)


def test_a_line_is_a_grid_of_one_axis(tmp_path: Path) -> None:
    x = np.linspace(0, 1, 7)
    write_vtk(tmp_path / "line.vtk", (x,), {"final": x**2}, "line")
    found = read(tmp_path / "line.vtk")
    assert found["dimensions"] == [7, 1, 1]
    assert np.allclose(found["fields"]["final"][:, 0], found["points"][:, 0] ** 2)


def test_other_programs_read_the_same(tmp_path: Path) -> None:
    pyvista = pytest.importorskip("pyvista")
    x, y = np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 2, 3), indexing="ij")
    write_vtk(tmp_path / "mesh.vtk", (x, y), {"speed": 10 * x + y}, "mesh")
    mesh = pyvista.read(tmp_path / "mesh.vtk")
    assert np.allclose(mesh["speed"], 10 * mesh.points[:, 0] + mesh.points[:, 1])
