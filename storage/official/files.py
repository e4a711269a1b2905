"""Read published arrays: MATLAB files of versions 5 to 7.3 and NumPy files.

    array = open_array(Path("Pipe_Q.npy"))            metadata only
    array = open_array(Path("ns.mat"), "u")
    array[:20]                                        these entries
    as_dask(array)                                    lazily

The kind of a file is told by its first bytes, not by its name. Axes are those MATLAB or NumPy
show. Whatever is wrong with a file becomes one PublishedFileInvalid that names the file, the
variable, what was found and what was expected.
"""

from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from storage.errors import PublishedFileInvalid, translated
from storage.official.matlab5 import MatArray, find_variables, refusing_damage

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
class NpyArray:
    """An array of an .npy file, mapped for each read: pages do not stay in resident memory."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    def __getitem__(self, index: Any) -> Array:
        return np.array(np.load(self.path, mmap_mode="r", allow_pickle=False)[index])


@dataclass(frozen=True)
class Mat73Array:
    """A variable of a MATLAB 7.3 file, which is HDF5 with all axes reversed."""

    path: Path
    variable: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    def __getitem__(self, index: Any) -> Array:
        import h5py

        index = index if isinstance(index, tuple) else (index,)
        index += (slice(None),) * (self.ndim - len(index))
        # HDF5 is slow at steps: read the range, then step through it.
        spans = tuple(
            slice(each.start, each.stop) if isinstance(each, slice) else each for each in index
        )
        steps = tuple(slice(None, None, each.step) for each in index if isinstance(each, slice))
        with refusing_damage(self.path, self.variable), h5py.File(self.path, "r") as file:
            values = file[self.variable][spans[::-1]]
        return np.asarray(values).T[steps]


FileArray: TypeAlias = NpyArray | Mat73Array | MatArray


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
    array: FileArray
    if variable is None:
        array = _open_npy(path)
    else:
        with refusing_damage(path, variable):
            array = (_open_mat73 if kind == "mat 7.3" else _open_mat5)(path, variable)
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

    is_packed = isinstance(array, MatArray) and array.packed is not None
    source = array[...] if is_packed else array
    return da.from_array(source, chunks=_piece(source, piece_bytes), name=False)


def _piece(array: FileArray | Array, piece_bytes: int) -> tuple[int, ...]:
    """Return the shape of what is read at once: whole chunks of the file, or values in a row.

    It grows along the axes that the file stores closest together; in a chunked file, where the
    order within does not matter, along the first axis last, so that samples stay whole.
    """
    axes = list(range(array.ndim))
    chunks = array.chunks if isinstance(array, Mat73Array) else None
    if chunks is not None:
        axes = axes[1:] + axes[:1]
    elif isinstance(array, NpyArray) and not array.by_columns:
        axes = axes[::-1]
    piece = list(chunks or (1,) * array.ndim)
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


def _open_npy(path: Path) -> NpyArray:
    def refused(error: Exception) -> PublishedFileInvalid:
        return PublishedFileInvalid(
            f"{path} has {path.stat().st_size} bytes and cannot be read as an array: {error}; "
            "fetch it again"
        )

    # numpy raises whatever a damaged header leads it to.
    with translated(Exception, into=refused):
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    _require_numbers(path, None, mapped.dtype)
    by_columns = mapped.flags.f_contiguous and not mapped.flags.c_contiguous
    return NpyArray(path, mapped.shape, mapped.dtype, by_columns)


def _open_mat5(path: Path, variable: str) -> MatArray:
    found = find_variables(path)
    if variable not in found:
        raise _no_variable(path, variable)
    problem = found[variable].problem
    if problem is not None:
        raise _no_numbers(path, variable, problem)
    return found[variable]


def _open_mat73(path: Path, variable: str) -> Mat73Array:
    import h5py

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
        _require_numbers(path, variable, dataset.dtype)
        chunks = None if dataset.chunks is None else dataset.chunks[::-1]
        return Mat73Array(path, variable, dataset.shape[::-1], dataset.dtype, chunks)


def _require_numbers(path: Path, variable: str | None, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "fiub":
        raise _no_numbers(path, variable, f"dtype {dtype}")


def _place(path: Path, variable: str | None) -> str:
    return str(path) if variable is None else f"variable {variable} of {path}"


def _no_numbers(path: Path, variable: str | None, found: str) -> PublishedFileInvalid:
    return PublishedFileInvalid(
        f"{_place(path, variable)} is {found}, expected an array of real numbers"
    )


def _no_variable(path: Path, variable: str) -> PublishedFileInvalid:
    found = ", ".join(sorted(mat_names(path))) or "none"
    return PublishedFileInvalid(f"{path} has no variable {variable}, it holds {found}")
