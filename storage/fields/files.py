"""Named arrays in the files that people keep fields in: zarr, NetCDF, npz and MATLAB.

    arrays = read_fields(Path("fields.nc"), ["coefficient"])
    write_fields(Path("predicted.zarr"), xr.Dataset({"pressure": (dims, values, {"units": "Pa"})}))

Files are told by the ends of their names. NetCDF is read as versions 3 and 4 and written as
version 3, MATLAB files are read as versions 5 to 7.3 and written as version 5: all programs that
know these formats read them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from storage.errors import StorageError, translated
from storage.location import whole_or_nothing

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]

_HDF = b"\x89HDF\r\n\x1a\n"
_NETCDF3_BYTES = 2**31 - 4
"""No variable that is written here is larger in NetCDF 3."""


class FieldFileInvalid(StorageError):
    """A file of fields cannot be read or written, or does not hold what is asked for."""


@dataclass(frozen=True)
class OpenedFile:
    """The names of the arrays in a file, and what reads one of them."""

    names: list[str]
    read: Callable[[str], Any]


@dataclass(frozen=True)
class Format:
    """How files of one kind are read, and written if they can be."""

    open: Callable[[Path], AbstractContextManager[OpenedFile]]
    write: Callable[[Path, xr.Dataset], None] | None = None


def variable_names(path: Path) -> list[str]:
    """Return the names of the arrays in a file."""
    with _opened(path) as file:
        return file.names


def read_fields(path: Path, names: Iterable[str]) -> Arrays:
    """Return some arrays of a file, with the axes that its program shows."""
    with _opened(path) as file:
        for name in names:
            if name not in file.names:
                raise FieldFileInvalid(
                    f"{path} has no variable {name}, it holds {', '.join(file.names) or 'none'}; "
                    "rename or add it"
                )
        return {name: np.asarray(file.read(name)) for name in names}


def write_fields(path: Path, content: xr.Dataset) -> None:
    """Write a file whole or not at all; an older file is replaced, an older zarr folder is not."""
    write = require_writable_kind(path)
    try:
        with whole_or_nothing(path) as partial:
            write(partial, content)
    except OSError as error:
        raise FieldFileInvalid(f"cannot write {path}: {error.strerror or error}") from error


def require_writable_kind(path: Path) -> Callable[[Path, xr.Dataset], None]:
    """Return what writes files of this name, before any work is done; FieldFileInvalid if none."""
    write = FORMATS[path.suffix].write if path.suffix in FORMATS else None
    if write is None:
        raise _unknown(path, [ending for ending, each in FORMATS.items() if each.write])
    if path.suffix == ".zarr" and path.exists():
        raise FieldFileInvalid(f"{path} is there already; remove it or choose another name")
    return write


def _unknown(path: Path, endings: Iterable[str]) -> FieldFileInvalid:
    return FieldFileInvalid(
        f"{path} has the ending {path.suffix or 'of no format'}, expected one of "
        f"{', '.join(endings)}"
    )


@contextmanager
def _opened(path: Path) -> Iterator[OpenedFile]:
    """Yield an open file; whatever damaged bytes lead a reader to becomes one sentence."""
    if path.suffix not in FORMATS:
        raise _unknown(path, FORMATS)
    if not path.exists():
        raise FieldFileInvalid(f"there is no file {path}")
    if path.is_dir() != (path.suffix == ".zarr"):
        found = "a folder" if path.is_dir() else "a file"
        raise FieldFileInvalid(f"{path} is {found}, which a {path.suffix} is not")

    def damaged(error: Exception) -> FieldFileInvalid:
        return FieldFileInvalid(
            f"{path} cannot be read ({type(error).__name__}: {error}), expected a whole "
            f"{path.suffix} file"
        )

    with translated(Exception, into=damaged), FORMATS[path.suffix].open(path) as file:
        yield file


@contextmanager
def _open_npz(path: Path) -> Iterator[OpenedFile]:
    # Opened here: numpy leaves the file open if it is damaged.
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        yield OpenedFile(file.files, file.__getitem__)


@contextmanager
def _open_mat(path: Path) -> Iterator[OpenedFile]:
    from storage.official.files import mat_names, open_array

    yield OpenedFile(mat_names(path), lambda name: open_array(path, name)[:])


@contextmanager
def _open_netcdf(path: Path) -> Iterator[OpenedFile]:
    import h5py

    with path.open("rb") as opened:
        is_version_4 = opened.read(len(_HDF)) == _HDF
    if is_version_4:
        with h5py.File(path, "r") as file:
            # A name that is no text comes as bytes.
            names = [str(name) for name, each in file.items() if isinstance(each, h5py.Dataset)]
            yield OpenedFile(names, lambda name: _unpacked(file[name]))
    else:
        with xr.open_dataset(path, engine="scipy", decode_times=False) as dataset:
            names = [str(name) for name in dataset.variables]
            # A copy: the file is mapped, and closed before the values are used.
            yield OpenedFile(names, lambda name: np.array(dataset[name].values))


def _unpacked(variable: Any) -> Array:
    """Return the values that a NetCDF variable stands for: scaled, and NaN where it has none."""
    values, attributes = variable[...], dict(variable.attrs)
    missing = [attributes[key] for key in ("_FillValue", "missing_value") if key in attributes]
    is_missing = np.isin(values, [np.ravel(value)[0] for value in missing])
    if "scale_factor" in attributes or "add_offset" in attributes:
        scale = float(np.ravel(attributes.get("scale_factor", 1.0))[0])
        values = values * scale + float(np.ravel(attributes.get("add_offset", 0.0))[0])
    return np.where(is_missing, np.nan, values) if is_missing.any() else values


@contextmanager
def _open_zarr(path: Path) -> Iterator[OpenedFile]:
    import zarr

    group: Any = zarr.open_group(path, mode="r", use_consolidated=False)
    yield OpenedFile(sorted(group.array_keys()), lambda name: group[name][...])


def _write_npz(path: Path, content: xr.Dataset) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **_arrays(content))


def _write_mat(path: Path, content: xr.Dataset) -> None:
    from scipy.io import savemat

    savemat(path, _arrays(content), appendmat=False)


def _arrays(content: xr.Dataset) -> Arrays:
    """Return variables and then coordinates."""
    named = {**content.data_vars, **content.coords}
    return {str(name): array.values for name, array in named.items()}


def _write_netcdf(path: Path, content: xr.Dataset) -> None:
    for name, variable in content.data_vars.items():
        if variable.nbytes > _NETCDF3_BYTES:
            raise FieldFileInvalid(
                f"{name} has {variable.nbytes} bytes, more than a NetCDF 3 variable holds; "
                "write it as .zarr"
            )
    content.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT")


def _write_zarr(path: Path, content: xr.Dataset) -> None:
    content.to_zarr(path, mode="w", consolidated=False, zarr_format=3)


FORMATS = {
    ".zarr": Format(_open_zarr, _write_zarr),
    ".nc": Format(_open_netcdf, _write_netcdf),
    ".npz": Format(_open_npz, _write_npz),
    ".mat": Format(_open_mat, _write_mat),
}
"""The formats by the ends of files' names."""
