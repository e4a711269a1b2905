"""Named arrays in the files that people keep fields in: zarr, NetCDF, npz and MATLAB.

    arrays = read_fields(Path("fields.nc"), ["coefficient"])
    write_fields(Path("predicted.zarr"), {"pressure": NamedArray(values, dims, "1", "...")})

Files are told by the ends of their names. NetCDF is read as versions 3 and 4 and written as
version 3, MATLAB files are read as versions 5 to 7.3 and written as version 5: all programs that
know these formats read them.
"""

import shutil
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from storage.errors import PublishedFileInvalid, StorageError

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]

_HDF = b"\x89HDF\r\n\x1a\n"
_NETCDF3_BYTES = 2**31 - 4
"""No variable that is written here is larger in NetCDF 3."""


class FieldFileInvalid(StorageError):
    """A file of fields cannot be read or written, or does not hold what is asked for."""


@dataclass(frozen=True, kw_only=True)
class NamedArray:
    """Values with what is known of them: the names of their axes, unit and description."""

    values: Array
    dims: tuple[str, ...]
    unit: str = "1"
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class FieldFile:
    """What a file is to hold: variables, the coordinates of their axes and where they are from."""

    variables: Mapping[str, NamedArray]
    coordinates: Mapping[str, Array] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)


def variable_names(path: Path) -> list[str]:
    """Return the names of the arrays in a file."""
    names, _ = _reader(path)
    with _readable(path):
        return names(path)


def read_fields(path: Path, names: Iterable[str]) -> Arrays:
    """Return some arrays of a file, with the axes that its program shows."""
    list_names, read = _reader(path)
    with _readable(path):
        found = list_names(path)
    for name in names:
        if name not in found:
            raise FieldFileInvalid(
                f"{path} has no variable {name}, it holds {', '.join(found) or 'none'}; rename "
                "or add it"
            )
    with _readable(path):
        return {name: np.asarray(values) for name, values in read(path, list(names)).items()}


def write_fields(path: Path, content: FieldFile) -> None:
    """Write a file whole or not at all; an older file is replaced, an older zarr folder is not."""
    kind = _kind(path)
    if kind == ".zarr" and path.exists():
        raise FieldFileInvalid(f"{path} is there already; remove it or choose another name")
    partial = path.with_name(f".{path.stem}.{uuid.uuid4().hex}.partial{kind}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _WRITERS[kind](partial, content)
        partial.replace(path)
    except OSError as error:
        raise FieldFileInvalid(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)


def require_writable_kind(path: Path) -> None:
    """Raise FieldFileInvalid unless files of this name can be written, before any work is done."""
    if _kind(path) == ".zarr" and path.exists():
        raise FieldFileInvalid(f"{path} is there already; remove it or choose another name")


def _kind(path: Path) -> str:
    if path.suffix not in _WRITERS:
        raise FieldFileInvalid(
            f"{path} has the ending {path.suffix or 'of no format'}, expected one of "
            f"{', '.join(_WRITERS)}"
        )
    return path.suffix


def _reader(path: Path) -> tuple[Callable[[Path], list[str]], Callable[..., Mapping[str, Any]]]:
    kind = _kind(path)
    if not path.exists():
        raise FieldFileInvalid(f"there is no file {path}")
    if path.is_dir() != (kind == ".zarr"):
        found = "a folder" if path.is_dir() else "a file"
        raise FieldFileInvalid(f"{path} is {found}, which a {kind} is not")
    if kind == ".nc" and _starts_with(path, _HDF):
        return _netcdf4_names, _read_netcdf4
    return _READERS[kind]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn whatever damaged bytes lead a reader to into one sentence."""
    try:
        yield
    except (FieldFileInvalid, PublishedFileInvalid):
        raise
    except Exception as error:
        raise FieldFileInvalid(
            f"{path} cannot be read ({type(error).__name__}: {error}), expected a whole "
            f"{path.suffix} file"
        ) from error


def _starts_with(path: Path, start: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(start)) == start


def _npz_names(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _read_npz(path: Path, names: list[str]) -> Arrays:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in names}


def _mat_names(path: Path) -> list[str]:
    if _is_mat73(path):
        import h5py

        with h5py.File(path, "r") as file:
            return [name for name in file if name[0] != "#"]
    from storage.matlab5 import find_variables

    return list(find_variables(path))


def _is_mat73(path: Path) -> bool:
    from storage.published_files import HEAD_BYTES, kind_of

    with path.open("rb") as file:
        kind = kind_of(file.read(HEAD_BYTES))
    if kind not in ("mat", "mat 7.3"):
        raise ValueError("it is of no MATLAB version from 5 to 7.3")
    return kind == "mat 7.3"


def _read_mat(path: Path, names: list[str]) -> Arrays:
    from storage.published_files import open_array

    return {name: np.asarray(open_array(path, name)[:]) for name in names}


def _netcdf3_names(path: Path) -> list[str]:
    import xarray as xr

    with xr.open_dataset(path, engine="scipy", decode_times=False) as dataset:
        return [str(name) for name in dataset.variables]


def _read_netcdf3(path: Path, names: list[str]) -> Arrays:
    import xarray as xr

    with xr.open_dataset(path, engine="scipy", decode_times=False) as dataset:
        return {name: np.array(dataset[name].values) for name in names}


def _netcdf4_names(path: Path) -> list[str]:
    import h5py

    with h5py.File(path, "r") as file:
        return [name for name, found in file.items() if isinstance(found, h5py.Dataset)]


def _read_netcdf4(path: Path, names: list[str]) -> Arrays:
    import h5py

    with h5py.File(path, "r") as file:
        return {name: _unpacked(file[name][...], dict(file[name].attrs)) for name in names}


def _unpacked(values: Array, attributes: Mapping[str, Any]) -> Array:
    """Return the values that a NetCDF variable stands for: scaled, and NaN where it has none."""
    missing = [attributes[key] for key in ("_FillValue", "missing_value") if key in attributes]
    is_missing = np.isin(values, [np.ravel(value)[0] for value in missing])
    if "scale_factor" in attributes or "add_offset" in attributes:
        scale = float(np.ravel(attributes.get("scale_factor", 1.0))[0])
        values = values * scale + float(np.ravel(attributes.get("add_offset", 0.0))[0])
    return np.where(is_missing, np.nan, values) if is_missing.any() else values


def _zarr_names(path: Path) -> list[str]:
    import zarr

    return sorted(zarr.open_group(path, mode="r", use_consolidated=False).array_keys())


def _read_zarr(path: Path, names: list[str]) -> Arrays:
    import zarr

    group = zarr.open_group(path, mode="r", use_consolidated=False)
    return {name: np.asarray(group[name][...]) for name in names}  # type: ignore[index]


def _write_npz(path: Path, content: FieldFile) -> None:
    arrays = {name: variable.values for name, variable in content.variables.items()}
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays, **content.coordinates)


def _write_mat(path: Path, content: FieldFile) -> None:
    from scipy.io import savemat

    arrays = {name: variable.values for name, variable in content.variables.items()}
    savemat(path, arrays | dict(content.coordinates), appendmat=False)


def _write_netcdf(path: Path, content: FieldFile) -> None:
    for name, variable in content.variables.items():
        if variable.values.nbytes > _NETCDF3_BYTES:
            raise FieldFileInvalid(
                f"{name} has {variable.values.nbytes} bytes, more than a NetCDF 3 variable holds; "
                "write it as .zarr"
            )
    _as_xarray(content).to_netcdf(path, engine="scipy", format="NETCDF3_64BIT")


def _write_zarr(path: Path, content: FieldFile) -> None:
    _as_xarray(content).to_zarr(path, mode="w", consolidated=False, zarr_format=3)


def _as_xarray(content: FieldFile) -> Any:
    import xarray as xr

    variables = {
        name: xr.DataArray(
            variable.values,
            dims=variable.dims,
            attrs={"units": variable.unit, "long_name": variable.description},
        )
        for name, variable in content.variables.items()
    }
    coordinates = {name: (name, values) for name, values in content.coordinates.items()}
    return xr.Dataset(variables, coords=coordinates, attrs=dict(content.attributes))


_READERS: dict[str, tuple[Callable[[Path], list[str]], Callable[..., Mapping[str, Any]]]] = {
    ".zarr": (_zarr_names, _read_zarr),
    ".nc": (_netcdf3_names, _read_netcdf3),
    ".npz": (_npz_names, _read_npz),
    ".mat": (_mat_names, _read_mat),
}
_WRITERS: dict[str, Callable[[Path, FieldFile], None]] = {
    ".zarr": _write_zarr,
    ".nc": _write_netcdf,
    ".npz": _write_npz,
    ".mat": _write_mat,
}
