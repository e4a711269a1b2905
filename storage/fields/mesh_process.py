"""A process that reads and writes meshes by VTK, so that a crash of VTK is not that of its caller.

Requests come as lines of JSON on standard input, arrays behind them as plain bytes; answers go as
JSON with its length before it to standard output, and one array behind it. The other end is
`storage.fields.meshes`; nothing else imports this module, and it imports nothing of the project.

Values stand at points or in cells, under the names of the file. `NAME@points` is the mean of the
cells around each point, `NAME@cells` the mean of the points of each cell; `x`, `y`, `z` and
`x@cells`, ... are the positions, and `volume@cells`, `volume@points` the length, area or volume of
each cell, or of a point's share of its cells.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

COORDINATES = ("x", "y", "z")
HIDDEN = ("vtkGhostType", "vtkOriginalPointIds", "vtkOriginalCellIds")
ROOM = 2**31
"""Bytes of memory for VTK beside the content of a file."""
ROOM_PER_BYTE = 64
"""A compressed file becomes so many times larger."""
LEAST_SHARE = 1e-6
"""Of the mean volume: a point of no cell, or a cell without extent, counts that much."""


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # VTK prints, too
    for line in sys.stdin.buffer:
        request = json.loads(line)
        payload = [sys.stdin.buffer.read(size) for size in request.get("sizes", [])]
        try:
            _limit_memory(request["n_bytes"])
            answer, content = _answer(request, payload)
        except MemoryError:
            answer, content = {"error": "it needs more memory than a file of its size may"}, b""
        except Exception as error:
            answer, content = {"error": f"{type(error).__name__}: {error}"}, b""
        plain = json.dumps(answer).encode()
        answers.write(len(plain).to_bytes(8, "big") + plain + content)
        answers.flush()


def _limit_memory(n_bytes: int) -> None:
    """Let what damaged sizes ask for fail, not the machine."""
    import pyvista  # noqa: F401  # what it takes itself is no concern of the file

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + ROOM + ROOM_PER_BYTE * n_bytes
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def _answer(request: dict[str, Any], payload: list[bytes]) -> tuple[dict[str, Any], bytes]:
    path = Path(request["path"])
    if request["do"] == "list":
        return {"arrays": _opened(path).listed()}, b""
    if request["do"] == "read":
        values = np.asarray(_opened(path).values(request["name"]), order="C")
        plain = {"shape": values.shape, "dtype": values.dtype.str, "n_bytes": values.nbytes}
        return plain, values.tobytes()
    fields = {
        each["name"]: np.frombuffer(content, each["dtype"]).reshape(each["shape"])
        for each, content in zip(request["fields"], payload, strict=True)
    }
    case = _opened(path)
    if request["do"] == "write":
        case.write(Path(request["to"]), fields, request["places"])
        return {}, b""
    corners, sizes, values = case.polygons(fields, request["places"])
    content = np.concatenate([corners.ravel(), values.ravel()]).tobytes()
    return {"sizes": sizes, "names": list(fields), "n_bytes": len(content)}, content


_held: list[tuple[tuple[str, int], "_Case"]] = []


def _opened(path: Path) -> "_Case":
    """Return a file, which is kept until another is asked for."""
    key = (str(path), path.stat().st_mtime_ns)
    if not _held or _held[0][0] != key:
        _held[:] = [(key, _Case(path))]
    return _held[0][1]


class _Case:
    """A mesh with the values on it, at one time or several."""

    def __init__(self, path: Path) -> None:
        self.reader = _reader(path)
        times = list(getattr(self.reader, "time_values", None) or [])
        self.times = times if len(times) > 1 else []
        self.frame = -1
        self.mesh: Any = None
        self.at(0)
        self.fields = self._fields()

    def at(self, frame: int) -> Any:
        """Return the mesh of a frame, which has as many points as the one before."""
        if frame == self.frame:
            return self.mesh
        if self.times:
            self.reader.set_active_time_value(self.times[frame])
        before = self.mesh
        self.mesh = _whole(self.reader.read())
        self.frame = frame
        if before is not None and before.n_points != self.mesh.n_points:
            raise ValueError(
                f"it has {before.n_points} points at one time and {self.mesh.n_points} at another, "
                "expected the same mesh at all times"
            )
        return self.mesh

    def _fields(self) -> dict[str, tuple[str, Any]]:
        """Return where each array stands, and its values at the first time."""
        mesh, found = self.mesh, dict[str, tuple[str, Any]]()
        held = (("point", mesh.point_data), ("cell", mesh.cell_data), ("", mesh.field_data))
        for place, data in held:
            for name in data:
                values = np.asarray(data[name])
                is_text = not place and values.dtype.itemsize == 1
                if name in HIDDEN or is_text or values.dtype.kind not in "fiub":
                    continue
                # The same name at points and in cells: the second says where it stands.
                found[f"{name}@cells" if name in found else name] = (place, values)
        return found

    def listed(self) -> dict[str, Any]:
        """Return shape, type, place and axes of every array, those that can be made included."""
        n_points, n_cells = self.mesh.n_points, self.mesh.n_cells
        listed: dict[str, Any] = {}

        def note(name: str, place: str, values: Any, n_values: int, is_moving: bool) -> None:
            shape, axes = [n_values, *values.shape[1:]], ["point", "component"][: values.ndim]
            if not place:
                shape, axes = list(values.shape), ["component"] * values.ndim
                if values.shape == (1,):
                    shape, axes = [], []
            if is_moving and place:
                shape, axes = [len(self.times), *shape], ["time", *axes]
            known = {"shape": shape, "dtype": values.dtype.str, "place": place, "axes": axes}
            listed.setdefault(name, known)

        moving = bool(self.times)
        for name, (place, values) in self.fields.items():
            note(name, place, values, n_points if place == "point" else n_cells, moving)
        one = np.zeros(1)
        for axis in COORDINATES:
            note(axis, "point", one, n_points, False)
            note(f"{axis}@cells", "cell", one, n_cells, False)
        note("volume@cells", "cell", one, n_cells, False)
        note("volume@points", "point", one, n_points, False)
        for name, (place, values) in self.fields.items():
            base = name.removesuffix("@cells")
            if place == "cell":
                note(f"{base}@points", "point", values.astype(float), n_points, moving)
            elif place == "point":
                note(f"{base}@cells", "cell", values.astype(float), n_cells, moving)
        return listed

    def values(self, name: str) -> Any:
        """Return the values of an array, of all times if there are several."""
        known = self.listed()
        if name not in known:
            raise ValueError(f"it has no {name}")
        if known[name]["axes"][:1] == ["time"]:
            return np.stack([self._at_frame(name, frame) for frame in range(len(self.times))])
        values = self._at_frame(name, 0)
        return values.reshape(known[name]["shape"])

    def _at_frame(self, name: str, frame: int) -> Any:
        mesh = self.at(frame)
        base, _, place = name.partition("@")
        if base in COORDINATES:
            points = mesh.cell_centers().points if place == "cells" else mesh.points
            return np.asarray(points)[:, COORDINATES.index(base)]
        if base == "volume" and place:
            return _volumes(mesh, place)
        if name in self.fields:
            where = {"point": mesh.point_data, "cell": mesh.cell_data, "": mesh.field_data}
            stands = self.fields[name][0]
            return np.asarray(where[stands][base if stands == "cell" else name])
        alone = mesh.copy(deep=False)
        alone.clear_data()
        if place == "points":
            alone.cell_data[base] = np.asarray(mesh.cell_data[base], dtype=float)
            return np.asarray(alone.cell_data_to_point_data().point_data[base])
        alone.point_data[base] = np.asarray(mesh.point_data[base], dtype=float)
        return np.asarray(alone.point_data_to_cell_data().cell_data[base])

    def polygons(self, fields: dict[str, Any], places: dict[str, str]) -> tuple[Any, Any, Any]:
        """Return what is drawn of fields: corners of polygons in a plane, and values in each.

        Of a body it is the cut through its middle, across its shortest extent; of a surface it is
        what is seen along that.
        """
        mesh = self.at(0).copy()
        mesh.clear_data()
        for name, values in fields.items():
            data = mesh.cell_data if places[name] == "cell" else mesh.point_data
            data[name] = np.asarray(values, dtype=float).reshape(len(values), -1)[:, -1]
        bounds = np.asarray(mesh.bounds).reshape(3, 2)
        extents = bounds[:, 1] - bounds[:, 0]
        depth = int(np.argmin(extents))
        if _dimension(mesh) == 3:
            mesh = mesh.slice(normal=np.eye(3)[depth], origin=np.asarray(mesh.center))
        else:
            mesh = mesh.extract_surface(algorithm="geometry")
        drawn = mesh.point_data_to_cell_data(pass_point_data=False) if mesh.n_points else mesh
        plane = [axis for axis in range(3) if axis != depth]
        points = np.asarray(drawn.points, dtype=float)[:, plane]
        offsets = np.asarray(drawn.GetPolys().GetOffsetsArray())
        order = np.asarray(drawn.GetPolys().GetConnectivityArray())
        values = [
            np.asarray(drawn.cell_data[name], dtype=float)[-len(offsets) + 1 :] for name in fields
        ]
        return points[order], np.diff(offsets).tolist(), np.stack(values)

    def write(self, to: Path, fields: dict[str, Any], places: dict[str, str]) -> None:
        """Write the mesh with fields added, whole or not at all."""
        mesh = self.at(max(0, len(self.times) - 1)).copy()
        for name, values in fields.items():
            data = {"point": mesh.point_data, "cell": mesh.cell_data, "": mesh.field_data}
            data[places[name]][name] = values
        suited = _suited(mesh, to.suffix.lower())
        partial = to.with_name(f".{to.stem}.partial{to.suffix}")
        try:
            suited.save(str(partial))
            os.replace(partial, to)
        finally:
            partial.unlink(missing_ok=True)


def _suited(mesh: Any, ending: str) -> Any:
    """Return a mesh as the kind that files of this ending hold."""
    import pyvista

    kinds: dict[str, tuple[type, Callable[[Any], Any]]] = {
        ".vtu": (pyvista.UnstructuredGrid, lambda m: m.cast_to_unstructured_grid()),
        ".vtp": (pyvista.PolyData, lambda m: m.extract_surface()),
        ".vts": (pyvista.StructuredGrid, lambda m: m.cast_to_structured_grid()),
    }
    kind, cast = kinds.get(ending, (object, lambda m: m))
    if ending == ".vtm":
        return pyvista.MultiBlock([mesh])
    return mesh if isinstance(mesh, kind) else cast(mesh)


def _volumes(mesh: Any, place: str) -> Any:
    """Return the extent of each cell in its own dimension, or each point's share of its cells."""
    sizes = mesh.compute_cell_sizes(length=True, area=True, volume=True, vertex_count=False)
    for name in ("Volume", "Area", "Length"):
        volumes = np.abs(np.asarray(sizes.cell_data[name], dtype=float))
        if volumes.any():
            break
    else:
        volumes = np.ones(mesh.n_cells)
    if place == "points":
        grid = mesh.cast_to_unstructured_grid()
        ends, points = np.asarray(grid.offset), np.asarray(grid.cell_connectivity)
        n_own = np.diff(ends)
        shares = np.repeat(volumes / np.maximum(1, n_own), n_own)
        volumes = np.bincount(points, shares, minlength=mesh.n_points)
    return np.maximum(volumes, LEAST_SHARE * max(float(volumes.mean()), np.finfo(float).tiny))


def _reader(path: Path) -> Any:
    """Return what reads a file, told to read all there is of the inside of a body."""
    import pyvista

    name = path.name.lower()
    if name.endswith((".foam", "controldict")):
        case = path.parent.parent if name == "controldict" else path.parent
        reader: Any = pyvista.POpenFOAMReader(str(path))
        is_apart = (case / "processor0").is_dir() and not (case / "constant" / "polyMesh").is_dir()
        reader.case_type = "decomposed" if is_apart else "reconstructed"
        reader.cell_to_point_creation = False
        reader.enable_all_cell_arrays()
        reader.enable_all_point_arrays()
        return reader
    if name.endswith(".cas.h5"):
        return pyvista.FLUENTCFFReader(str(path))
    if name.endswith(".cas"):
        return pyvista.FluentReader(str(path))
    reader = pyvista.get_reader(str(path))
    if name.endswith(".cgns"):
        reader.load_boundary_patch = False
        reader.enable_all_cell_arrays()
        reader.enable_all_point_arrays()
    return reader


def _whole(read: Any) -> Any:
    """Return what was read as one mesh: of several blocks those that are not the others' skin."""
    import pyvista

    if not isinstance(read, pyvista.MultiBlock):
        if read is None or not getattr(read, "n_points", 0):
            raise ValueError("it has no points")
        return read
    blocks = [each for each in _leaves(read) if each.n_points]
    if not blocks:
        raise ValueError("it has no block with points")
    dimensions = [_dimension(each) for each in blocks]
    inside = [b for b, n in zip(blocks, dimensions, strict=True) if n == max(dimensions)]
    if len(inside) == 1:
        return inside[0]
    return pyvista.MultiBlock(inside).combine(merge_points=False)


def _leaves(blocks: Any) -> list[Any]:
    import pyvista

    found: list[Any] = []
    for each in blocks:
        if isinstance(each, pyvista.MultiBlock):
            found += _leaves(each)
        elif isinstance(each, pyvista.DataSet):
            found.append(each)
    return found


def _dimension(mesh: Any) -> int:
    return int(mesh.GetCell(0).GetCellDimension()) if mesh.n_cells else 0


if __name__ == "__main__":
    main()
