"""Read published arrays: MATLAB files of versions 5 to 7.3 and NumPy files.

    array = open_array(Path("Pipe_Q.npy"))            metadata only
    array = open_array(Path("ns.mat"), "u")
    array[:20]                                        these entries
    as_dask(array)                                    lazily

The kind of a file is told by its first bytes, not by its name. Axes are those MATLAB or NumPy
show. Whatever is wrong with a file becomes one PublishedFileInvalid that names the file, the
variable, what was found and what was expected.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from storage.errors import PublishedFileInvalid, translated
from storage.official.matlab5 import find_variables, refusing_damage

Kind = Literal["npy", "mat", "mat 7.3", "zip"]
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

HEAD_BYTES = 520
"""How much of a file tells its kind."""
PIECE_BYTES = 2**26
"""How much of an array is read at once."""

_HDF = b"\x89HDF\r\n\x1a\n"


def kind_of(head: bytes) -> Kind | None:
    """Return what a file is by its first bytes, or None if it is nothing that is read here."""
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    if head.startswith(_HDF) or head[512:].startswith(_HDF):
        return "mat 7.3"
    # Version and byte order close the 128 bytes of the header of MATLAB 5 to 7.
    if head[124:128] in (b"\x00\x01IM", b"\x01\x00MI"):
        return "mat"
    return None


@dataclass(frozen=True)
class FileArray:
    """An array of a file; every index reads anew, so that pages do not stay in resident memory.

    `by_columns` says that the first axis varies fastest in the file, as MATLAB has it. `chunks` is
    what an HDF5 file stores together; an array that `is_packed` is inflated whole for every index.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[Any], Array]
    by_columns: bool = True
    chunks: tuple[int, ...] | None = None
    is_packed: bool = False

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    def __getitem__(self, index: Any) -> Array:
        return self.read(index)


def open_array(
    path: Path, variable: str | None = None, shape: tuple[int, ...] | None = None
) -> FileArray:
    """Return an array of a file without reading it; `variable` names it in a MATLAB file.

    With `shape`, an array of another one is refused.
    """
    head = _head(path)
    kind = kind_of(head)
    if kind not in ("npy", "mat", "mat 7.3"):
        raise PublishedFileInvalid(
            f"{path} starts with {head[:16]!r}, expected an .npy file or a MATLAB file of version "
            "5 to 7.3; fetch it again"
        )
    if (kind == "npy") != (variable is None):
        expected = "an .npy file" if variable is None else f"a MATLAB file with {variable}"
        raise PublishedFileInvalid(f"{path} is of the kind {kind}, expected {expected}")
    if variable is None:
        array = _open_npy(path)
    else:
        with refusing_damage(path, variable):
            array = (_open_mat73 if kind == "mat 7.3" else _open_mat5)(path, variable)
    if array.dtype.kind not in "fiub":
        raise _no_numbers(path, variable, f"dtype {array.dtype}")
    if shape is not None and array.shape != shape:
        raise PublishedFileInvalid(
            f"{_place(path, variable)} has shape {array.shape}, expected {shape}"
        )
    return array


def mat_names(path: Path) -> list[str]:
    """Return the names of the variables in a MATLAB file; some exception or other if damaged."""
    import h5py

    kind = kind_of(_head(path))
    if kind == "mat 7.3":
        with h5py.File(path, "r") as file:
            return [name for name in file if name[0] != "#"]
    if kind != "mat":
        raise ValueError("it is of no MATLAB version from 5 to 7.3")
    return list(find_variables(path))


def as_dask(array: FileArray, piece_bytes: int = PIECE_BYTES) -> Any:
    """Return an array as a lazy dask array, in pieces that the file stores together.

    A compressed variable of a MATLAB 7 file is inflated into memory now; files of other kinds are
    read in bounded memory.
    """
    import dask.array as da

    source = array[...] if array.is_packed else array
    return da.from_array(source, chunks=_piece(array, piece_bytes), name=False)


def _piece(array: FileArray, piece_bytes: int) -> tuple[int, ...]:
    """Return the shape of what is read at once: whole chunks of the file, or values in a row.

    It grows along the axes that the file stores closest together; in a chunked file, where the
    order within does not matter, along the first axis last, so that samples stay whole.
    """
    axes = list(range(array.ndim))
    if array.chunks is not None:
        axes = axes[1:] + axes[:1]
    elif not array.by_columns:
        axes = axes[::-1]
    piece = list(array.chunks or (1,) * array.ndim)
    for axis in axes:
        n_fitting = piece_bytes // (prod(piece) * array.dtype.itemsize)
        n_wanted = ceil(array.shape[axis] / piece[axis])
        piece[axis] *= max(1, min(n_fitting, n_wanted))
    return tuple(min(size, whole) for size, whole in zip(piece, array.shape, strict=True))


def require_finite(values: Array, path: Path, variable: str | None, first_sample: int) -> None:
    """Raise PublishedFileInvalid if samples, along the first axis, hold NaN or infinity."""
    if np.isfinite(values).all():
        return
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    sample = int(np.argmin(finite))
    n_wrong = int((~np.isfinite(values[sample])).sum())
    raise PublishedFileInvalid(
        f"{_place(path, variable)} has {n_wrong} values of NaN or infinity in sample "
        f"{first_sample + sample}, expected finite numbers; fetch it again"
    )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _open_npy(path: Path) -> FileArray:
    def refused(error: Exception) -> PublishedFileInvalid:
        return PublishedFileInvalid(
            f"{path} has {path.stat().st_size} bytes and cannot be read as an array: {error}; "
            "fetch it again"
        )

    def load() -> Array:
        return np.load(path, mmap_mode="r", allow_pickle=False)

    # numpy raises whatever a damaged header leads it to.
    with translated(Exception, into=refused):
        mapped = load()
    by_columns = mapped.flags.f_contiguous and not mapped.flags.c_contiguous
    return FileArray(mapped.shape, mapped.dtype, lambda index: np.array(load()[index]), by_columns)


def _open_mat5(path: Path, variable: str) -> FileArray:
    found = find_variables(path).get(variable)
    if found is None:
        raise _no_variable(path, variable)
    if found.problem is not None:
        raise _no_numbers(path, variable, found.problem)
    return FileArray(
        found.shape,
        found.dtype,
        lambda index: np.array(found.load()[index]),
        is_packed=found.packed is not None,
    )


def _open_mat73(path: Path, variable: str) -> FileArray:
    """Return a variable of a MATLAB 7.3 file, which is HDF5 with all axes reversed."""
    import h5py

    def read(index: Any) -> Array:
        index = index if isinstance(index, tuple) else (index,)
        index += (slice(None),) * (len(shape) - len(index))
        # HDF5 is slow at steps: read the range, then step through it.
        spans = tuple(
            slice(each.start, each.stop) if isinstance(each, slice) else each for each in index
        )
        steps = tuple(slice(None, None, each.step) for each in index if isinstance(each, slice))
        with refusing_damage(path, variable), h5py.File(path, "r") as file:
            values = file[variable][spans[::-1]]
        return np.asarray(values).T[steps]

    with h5py.File(path, "r") as file:
        if variable not in file:
            raise _no_variable(path, variable)
        dataset = file[variable]
        if not isinstance(dataset, h5py.Dataset):
            raise _no_numbers(path, variable, "a group")
        link = file.get(variable, getlink=True)
        # Data that lies in other files is no part of what was downloaded and hashed.
        if not isinstance(link, h5py.HardLink) or dataset.external or dataset.is_virtual:
            raise _no_numbers(path, variable, "a reference to another file")
        shape = dataset.shape[::-1]
        chunks = None if dataset.chunks is None else dataset.chunks[::-1]
        return FileArray(shape, dataset.dtype, read, chunks=chunks)


def _place(path: Path, variable: str | None) -> str:
    return str(path) if variable is None else f"variable {variable} of {path}"


def _no_numbers(path: Path, variable: str | None, found: str) -> PublishedFileInvalid:
    return PublishedFileInvalid(
        f"{_place(path, variable)} is {found}, expected an array of real numbers"
    )


def _no_variable(path: Path, variable: str) -> PublishedFileInvalid:
    found = ", ".join(sorted(mat_names(path))) or "none"
    return PublishedFileInvalid(f"{path} has no variable {variable}, it holds {found}")
