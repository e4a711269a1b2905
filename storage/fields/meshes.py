"""Meshes with values at points or in cells, read by VTK through pyvista, which need not be there.

VTK's readers trust their files: a damaged one ends the process. So they run in a process of their
own (`mesh_process`), which stays for the next file; where it dies, that is one sentence about the
file it was reading.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from select import select
from typing import Any

import numpy as np

from storage.fields import mesh_process
from storage.fields.array import FieldArray

Array = np.ndarray[Any, np.dtype[Any]]
Given = tuple[Mapping[str, Array], Mapping[str, str]]
"""Fields, and where each stands: at points, in cells, or as a number of the whole."""

SECONDS, SECONDS_PER_BYTE = 120.0, 2e-5
"""How long VTK may be silent over a file."""
WRITABLE = (".vtu", ".vtk", ".vtp", ".vts", ".vtr", ".vti", ".vtm")
LISTS_KEPT = 2**17


def mesh_arrays(path: Path) -> dict[str, Callable[[], FieldArray]]:
    """Return the arrays of a mesh, by name; see `mesh_process` for those that are made."""
    listed = _listed(path, path.stat().st_mtime_ns)

    def opened(name: str) -> FieldArray:
        known = listed[name]
        return FieldArray(
            tuple(known["shape"]),
            np.dtype(known["dtype"]),
            lambda index: _read(path, name)[index],
            place=known["place"],
            axes=tuple(known["axes"]),
        )

    return {name: partial(opened, name) for name in listed}


def write_mesh(
    source: Path, to: Path, fields: Mapping[str, Array], places: Mapping[str, str]
) -> None:
    """Write a mesh as it was read, with fields added at its points or in its cells, in whole."""
    _process().ask({"do": "write", "path": str(source), "to": str(to)}, (fields, places))


def mesh_polygons(
    source: Path, fields: Mapping[str, Array], places: Mapping[str, str]
) -> tuple[list[Array], dict[str, Array]]:
    """Return the cells of a mesh to be drawn, as corners in a plane, and values of fields in each.

    See `mesh_process` for which plane that is.
    """
    answer, content = _process().ask({"do": "draw", "path": str(source)}, (fields, places))
    numbers = np.frombuffer(content)
    n_corners = sum(answer["sizes"])
    corners = numbers[: 2 * n_corners].reshape(-1, 2)
    values = numbers[2 * n_corners :].reshape(len(fields), -1)
    ends = np.cumsum(answer["sizes"])[:-1]
    return np.split(corners, ends), dict(zip(answer["names"], values, strict=True))


def companions(path: Path) -> list[Path]:
    """Return the files that a mesh is kept in beside the one that names it."""
    name = path.name.lower()
    if name.endswith((".foam", "controldict")):
        case = path.parent.parent if name == "controldict" else path.parent
        return sorted(each for each in case.rglob("*") if each.is_file() and each != path)
    if name.endswith(".vtm"):
        return sorted(each for each in path.with_suffix("").rglob("*") if each.is_file())
    if name.endswith((".case", ".cas", ".cas.h5")):
        stem = path.name.partition(".")[0]
        return sorted(p for p in path.parent.glob(f"{stem}.*") if p.is_file() and p != path)
    return []


@lru_cache(LISTS_KEPT)
def _listed(path: Path, changed: int) -> dict[str, Any]:
    """Return what arrays a file has; `changed` tells a new file of the same name."""
    answer, _ = _process().ask({"do": "list", "path": str(path)})
    return dict(answer["arrays"])


def _read(path: Path, name: str) -> Array:
    answer, content = _process().ask({"do": "read", "path": str(path), "name": name})
    return np.frombuffer(content, answer["dtype"]).reshape(answer["shape"])


class _Process:
    """The process that calls VTK, started when it is first asked for and again when it died."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.running: subprocess.Popen[bytes] | None = None

    def ask(
        self, request: dict[str, Any], given: Given | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Return an answer and the bytes behind it; a ValueError says what went wrong."""
        contents: list[bytes] = []
        if given is not None:
            fields, places = given
            described = [
                {"name": name, "dtype": v.dtype.str, "shape": v.shape} for name, v in fields.items()
            ]
            contents = [np.ascontiguousarray(v).tobytes() for v in fields.values()]
            request |= {"fields": described, "places": dict(places)}
            request["sizes"] = [len(content) for content in contents]
        path = Path(request["path"])
        n_bytes = sum(each.stat().st_size for each in (path, *companions(path)))
        running = self._started()
        assert running.stdin is not None
        assert running.stdout is not None
        self.until = SECONDS + SECONDS_PER_BYTE * n_bytes
        try:
            plain = json.dumps({**request, "n_bytes": n_bytes}).encode() + b"\n"
            running.stdin.write(plain + b"".join(contents))
            running.stdin.flush()
            length = int.from_bytes(self._exactly(running, 8), "big")
            answer = json.loads(self._exactly(running, length))
            content = self._exactly(running, answer.get("n_bytes", 0))
        except (BrokenPipeError, EOFError) as error:
            code = self._ended()
            raise ValueError(f"VTK broke down over it ({code})") from error
        if "error" in answer:
            raise ValueError(" ".join(str(answer["error"]).split())[:300])
        return answer, content

    def _started(self) -> "subprocess.Popen[bytes]":
        if self.running is not None and self.running.poll() is not None:
            self._close()
        if self.running is None:
            if find_spec("pyvista") is None:
                raise ValueError("meshes are read by pyvista; install it: pip install 'lsm[mesh]'")
            self.running = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", str(mesh_process.__file__)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self.running

    def _exactly(self, running: "subprocess.Popen[bytes]", size: int) -> bytes:
        parts, missing = [], size
        while missing:
            parts.append(self._some(running, missing))
            missing -= len(parts[-1])
        return b"".join(parts)

    def _some(self, running: "subprocess.Popen[bytes]", size: int) -> bytes:
        assert running.stdout is not None
        ready, _, _ = select([running.stdout], [], [], self.until)
        if not ready:
            running.kill()
            raise EOFError
        part = os.read(running.stdout.fileno(), size)
        if not part:
            raise EOFError
        return part

    def _ended(self) -> str:
        assert self.running is not None
        code = self.running.wait()
        self._close()
        if code == -signal.SIGKILL:
            return f"no answer in {self.until:.0f} s, or killed"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def end(self) -> None:
        """End the process, if this is the one that started it."""
        if self.running is not None and self.owner == os.getpid():
            self.running.kill()
            self.running.wait()
            self._close()

    def _close(self) -> None:
        """Forget a process that has ended, and its pipes."""
        assert self.running is not None
        for pipe in (self.running.stdin, self.running.stdout):
            with suppress(OSError):  # what was still to be written to the dead
                if pipe is not None:
                    pipe.close()
        self.running = None


_own: dict[int, _Process] = {}


def _process() -> _Process:
    """Return this process's own: after a fork two would read each other's answers."""
    if os.getpid() not in _own:
        _own.clear()
        _own[os.getpid()] = _Process()
        atexit.register(_own[os.getpid()].end)
    return _own[os.getpid()]
