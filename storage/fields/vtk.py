"""Fields on meshes as VTK files, which ParaView and others read.

The legacy format, version 3.0, binary: a text header, then numbers with the most significant byte
first. A mesh of one or two axes is a structured grid, on which neighbours in the array are
neighbours in space; points without neighbours are vertices. Reference: Kitware, "VTK File
Formats", legacy formats.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from storage.location import Location

Array = np.ndarray[Any, np.dtype[Any]]


def write_vtk(
    path: Path, positions: Sequence[Array], fields: Mapping[str, Array], title: str
) -> None:
    """Write fields `(*mesh, *components)` at positions, one array `(*mesh)` a coordinate.

    One array of positions, or arrays with several axes, are a structured grid; several arrays with
    one axis are scattered points.
    """
    mesh = positions[0].shape
    n_points = positions[0].size
    # VTK's first index runs fastest, NumPy's last: points are written in NumPy's order, so the
    # axes are named in reverse.
    sizes = (*reversed(mesh), 1, 1)[:3]
    points = np.zeros((n_points, 3), np.float32)
    for axis, values in enumerate(positions):
        points[:, axis] = values.reshape(-1)
    parts = [
        b"# vtk DataFile Version 3.0\n",
        f"{' '.join(title.split())[:255]}\nBINARY\n".encode("ascii", "replace"),
    ]
    if len(mesh) == 1 and len(positions) > 1:
        parts += [b"DATASET POLYDATA\n", _points(points), _vertices(n_points)]
    else:
        dimensions = " ".join(map(str, sizes))
        parts += [f"DATASET STRUCTURED_GRID\nDIMENSIONS {dimensions}\n".encode(), _points(points)]
    parts.append(f"POINT_DATA {n_points}\nFIELD fields {len(fields)}\n".encode())
    parts += [_field(name, values, n_points) for name, values in fields.items()]
    Location.parse(str(path)).write_bytes(b"".join(parts))


def _points(points: Array) -> bytes:
    return f"POINTS {len(points)} float\n".encode() + _big_endian(points, ">f4")


def _vertices(n_points: int) -> bytes:
    """Return one cell of one point for each point; without cells viewers show nothing."""
    cells = np.stack([np.ones(n_points), np.arange(n_points)], axis=1)
    return f"VERTICES {n_points} {2 * n_points}\n".encode() + _big_endian(cells, ">i4")


def _field(name: str, values: Array, n_points: int) -> bytes:
    columns = values.reshape(n_points, -1)
    heading = f"{name.replace(' ', '_')} {columns.shape[1]} {n_points} float\n"
    return heading.encode() + _big_endian(columns, ">f4")


def _big_endian(values: Array, dtype: str) -> bytes:
    return np.ascontiguousarray(values, dtype=dtype).tobytes() + b"\n"
