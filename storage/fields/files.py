"""Named arrays in the files that people keep fields in, read by one table of formats.

    arrays = read_fields(Path("fields.nc"), ["coefficient"])
    write_fields(Path("predicted.zarr"), xr.Dataset({"pressure": (dims, values, {"units": "Pa"})}))

Files are told by the ends of their names; `open_arrays` reads nothing but what is indexed. NetCDF
is read as versions 3 and 4 and written as version 3, MATLAB files are read as versions 5 to 7.3 and
written as version 5: all programs that know these formats read them.
"""

import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from storage.errors import PublishedFileInvalid, StorageError, translated
from storage.fields.array import FieldArray, mapped_member
from storage.fields.meshes import mesh_arrays
from storage.fields.tables import comsol_arrays, csv_arrays
from storage.fields.torch_files import torch_arrays
from storage.location import whole_or_nothing
from storage.official.files import FileArray, mat_names, open_array

if TYPE_CHECKING:
    import xarray as xr

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]

_HDF = b"\x89HDF\r\n\x1a\n"
MOST_INFLATED = 1100
"""No bytes of a zip become more than so many."""
_NETCDF3_BYTES = 2**31 - 4
"""No variable that is written here is larger in NetCDF 3."""


class FieldFileInvalid(StorageError):
    """A file of fields cannot be read or written, or does not hold what is asked for."""


Openers = dict[str, Callable[[], FieldArray]]


@dataclass(frozen=True)
class Format:
    """How files of one kind are read, and written if they can be."""

    arrays: Callable[[Path], Openers]
    """The arrays of a file by name, each opened when it is asked for."""
    write: Callable[[Path, "xr.Dataset"], None] | None = None
    attributes: Callable[[Path], Mapping[str, Any]] | None = None
    """What a file says of all that it holds."""
    is_sample: bool = False
    """Whether a file is one sample: points are its rows, and there is no axis of samples."""
    is_mesh: bool = False


def variable_names(path: Path) -> list[str]:
    """Return the names of the arrays in a file."""
    return list(_openers(path))


def open_arrays(path: Path) -> dict[str, FieldArray]:
    """Return the arrays of real numbers in a file, without reading their values.

    Text and other things that are no fields are passed over, unless there is nothing else.
    """
    found, refused = {}, list[PublishedFileInvalid]()
    for name, opener in _openers(path).items():
        try:
            with _refusing_damage(path):
                array = opener()
        except PublishedFileInvalid as error:
            refused.append(error)
        else:
            if array.dtype.kind in "fiub":
                found[name] = replace(array, read=_guarded(path, array))
    if refused and not found:
        raise refused[0]
    return found


def read_fields(path: Path, names: Iterable[str]) -> Arrays:
    """Return some arrays of a file, with the axes that its program shows."""
    openers = _openers(path)
    for name in names:
        if name not in openers:
            raise FieldFileInvalid(
                f"{path} has no variable {name}, it holds {', '.join(openers) or 'none'}; "
                "rename or add it"
            )
    with _refusing_damage(path):
        return {name: np.asarray(openers[name]()[...]) for name in names}


def said_numbers(path: Path, names: Iterable[str]) -> dict[str, float]:
    """Return what a file says of parameters: an array of one value, or an attribute of the whole.

    A dataset that was generated says them as the parameters of its problem.
    """
    openers, attributes = _openers(path), format_of(path).attributes
    with _refusing_damage(path):
        said = dict(attributes(path)) if attributes else {}
        for name in openers.keys() & set(names):
            array = openers[name]()
            if prod(array.shape) == 1:
                said[name] = np.asarray(array[...]).item()
    found = {name: np.ravel(said[name]) for name in names if name in said}
    return {k: float(v[0]) for k, v in found.items() if len(v) == 1 and v.dtype.kind in "fiu"}


def _guarded(path: Path, array: FieldArray) -> Callable[[Any], Array]:
    def read(index: Any) -> Array:
        with _refusing_damage(path):
            return array.read(index)

    return read


def write_fields(path: Path, content: "xr.Dataset") -> None:
    """Write a file whole or not at all; an older file is replaced, an older zarr folder is not."""
    write = require_writable_kind(path)
    try:
        with whole_or_nothing(path) as partial:
            write(partial, content)
    except OSError as error:
        raise FieldFileInvalid(f"cannot write {path}: {error.strerror or error}") from error


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write plain arrays as .npz, whole or not at all."""
    try:
        with whole_or_nothing(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise FieldFileInvalid(f"cannot write {path}: {error.strerror or error}") from error


def require_writable_kind(path: Path) -> Callable[[Path, "xr.Dataset"], None]:
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


def format_of(path: Path) -> Format:
    """Return how a file is read, by the end of its name; FieldFileInvalid if that is unknown."""
    ending = next((each for each in FORMATS if path.name.lower().endswith(each)), None)
    if ending is None:
        raise _unknown(path, FORMATS)
    return FORMATS[ending]


def _openers(path: Path) -> Openers:
    """Return what opens each array; whatever damaged bytes lead a reader to becomes a sentence."""
    reader = format_of(path)
    if not path.exists():
        raise FieldFileInvalid(f"there is no file {path}")
    if path.is_dir() != (path.suffix == ".zarr"):
        found = "a folder" if path.is_dir() else "a file"
        raise FieldFileInvalid(f"{path} is {found}, which a {path.suffix} is not")
    with _refusing_damage(path):
        return reader.arrays(path)


def _refusing_damage(path: Path) -> AbstractContextManager[None]:
    def damaged(error: Exception) -> FieldFileInvalid:
        said = " ".join(str(error).split())
        return FieldFileInvalid(
            f"{path} cannot be read ({type(error).__name__}: {said}), expected a whole "
            f"{path.suffix} file"
        )

    return translated(Exception, into=damaged)


def _npz_arrays(path: Path) -> Openers:
    with zipfile.ZipFile(path) as file:
        names = [each.removesuffix(".npy") for each in file.namelist()]
    return {name: lambda name=name: _npz_array(path, name) for name in names}  # type: ignore[misc]


def _npz_array(path: Path, name: str) -> FieldArray:
    """Return an array of an npz file: mapped where it lies, or inflated for every index."""
    with zipfile.ZipFile(path) as file:
        part = f"{name}.npy" if f"{name}.npy" in file.namelist() else name
        member = file.getinfo(part)
        with file.open(part) as opened:
            version = np.lib.format.read_magic(opened)
            read_header = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, by_columns, dtype = read_header(opened)
            skipped = opened.tell()
    size = prod(shape)
    if dtype.hasobject or size * dtype.itemsize > MOST_INFLATED * path.stat().st_size:
        raise ValueError(f"{name} is said to have {shape} values of {dtype}, which it has not")

    def read(index: Any) -> Array:
        if member.compress_type == zipfile.ZIP_STORED:
            flat = mapped_member(path, part, dtype, size, skipped)
        else:
            with zipfile.ZipFile(path) as file, file.open(part) as opened:
                opened.read(skipped)
                flat = np.frombuffer(opened.read(size * dtype.itemsize), dtype)
        return np.array(flat.reshape(shape, order="F" if by_columns else "C")[index])

    return FieldArray(
        shape, dtype, read, by_columns, is_packed=member.compress_type != zipfile.ZIP_STORED
    )


def _npy_arrays(path: Path) -> Openers:
    return {path.stem: lambda: _field(open_array(path))}


def _mat_arrays(path: Path) -> Openers:
    names = mat_names(path)
    return {name: lambda name=name: _field(open_array(path, name)) for name in names}  # type: ignore[misc]


def _field(array: FileArray) -> FieldArray:
    return FieldArray(**vars(array))


def _hdf5_arrays(path: Path) -> Openers:
    """Return the datasets of an HDF5 file by their paths, those of NetCDF 4 among them."""
    import h5py

    found: list[str] = []

    def note(name: Any, each: Any) -> None:
        # A name that is no text comes as bytes.
        if isinstance(each, h5py.Dataset) and not each.external and not each.is_virtual:
            found.append(str(name))

    with h5py.File(path, "r") as file:
        file.visititems(note)
    return {name: lambda name=name: _hdf5_array(path, name) for name in found}  # type: ignore[misc]


def _hdf5_attributes(path: Path) -> dict[str, Any]:
    import h5py

    with h5py.File(path, "r") as file:
        return dict(file.attrs)


def _hdf5_array(path: Path, name: str) -> FieldArray:
    import h5py

    def read(index: Any) -> Array:
        with h5py.File(path, "r") as file:
            return _unpacked(file[name], index)

    with h5py.File(path, "r") as file:
        dataset, unit = file[name], file[name].attrs.get("units", b"")
        unit = unit.decode("utf-8", "replace") if isinstance(unit, bytes) else str(unit)
        return FieldArray(dataset.shape, dataset.dtype, read, chunks=dataset.chunks, unit=unit)


def _is_netcdf_4(path: Path) -> bool:
    with path.open("rb") as opened:
        return opened.read(len(_HDF)) == _HDF


def _netcdf_attributes(path: Path) -> dict[str, Any]:
    if _is_netcdf_4(path):
        return _hdf5_attributes(path)
    import xarray as xr

    with xr.open_dataset(path, engine="scipy", decode_times=False) as dataset:
        return {str(name): value for name, value in dataset.attrs.items()}


def _netcdf_arrays(path: Path) -> Openers:
    if _is_netcdf_4(path):
        return _hdf5_arrays(path)
    import xarray as xr  # with pandas, which takes a second

    with xr.open_dataset(path, engine="scipy", decode_times=False) as dataset:
        names = [str(name) for name in dataset.variables]
    return {name: lambda name=name: _netcdf3_array(path, name) for name in names}  # type: ignore[misc]


def _netcdf3_array(path: Path, name: str) -> FieldArray:
    import xarray as xr

    def read(index: Any) -> Array:
        with xr.open_dataset(path, engine="scipy", decode_times=False) as dataset:
            # A copy: the file is mapped, and closed before the values are used.
            return np.array(dataset[name][index].values)

    with xr.open_dataset(path, engine="scipy", decode_times=False) as dataset:
        variable = dataset[name]
        unit = str(variable.attrs.get("units", ""))
        return FieldArray(variable.shape, variable.dtype, read, unit=unit)


def _unpacked(variable: Any, index: Any) -> Array:
    """Return the values that a NetCDF variable stands for: scaled, and NaN where it has none."""
    values, attributes = variable[index], dict(variable.attrs)
    missing = [attributes[key] for key in ("_FillValue", "missing_value") if key in attributes]
    is_missing = np.isin(values, [np.ravel(value)[0] for value in missing])
    if "scale_factor" in attributes or "add_offset" in attributes:
        scale = float(np.ravel(attributes.get("scale_factor", 1.0))[0])
        values = values * scale + float(np.ravel(attributes.get("add_offset", 0.0))[0])
    return np.where(is_missing, np.nan, values) if is_missing.any() else values


def _zarr_arrays(path: Path) -> Openers:
    import zarr

    group: Any = zarr.open_group(path, mode="r", use_consolidated=False)

    def opened(name: str) -> FieldArray:
        array = group[name]
        unit = str(array.attrs.get("units", ""))
        return FieldArray(array.shape, array.dtype, array.__getitem__, unit=unit)

    return {name: lambda name=name: opened(name) for name in sorted(group.array_keys())}  # type: ignore[misc]


def _zarr_attributes(path: Path) -> dict[str, Any]:
    import zarr

    own = dict(zarr.open_group(path, mode="r", use_consolidated=False).attrs)
    provenance = own.get("provenance")
    parameters = provenance.get("parameters") if isinstance(provenance, dict) else None
    return {**parameters, **own} if isinstance(parameters, dict) else own


def _write_npz(path: Path, content: "xr.Dataset") -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **_arrays(content))


def _write_hdf5(path: Path, content: "xr.Dataset") -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, values in _arrays(content).items():
            file[name] = values


def _write_mat(path: Path, content: "xr.Dataset") -> None:
    from scipy.io import savemat

    savemat(path, _arrays(content), appendmat=False)


def _arrays(content: "xr.Dataset") -> Arrays:
    """Return variables and then coordinates."""
    named = {**content.data_vars, **content.coords}
    return {str(name): array.values for name, array in named.items()}


def _write_netcdf(path: Path, content: "xr.Dataset") -> None:
    for name, variable in content.data_vars.items():
        if variable.nbytes > _NETCDF3_BYTES:
            raise FieldFileInvalid(
                f"{name} has {variable.nbytes} bytes, more than a NetCDF 3 variable holds; "
                "write it as .zarr"
            )
    content.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT")


def _write_zarr(path: Path, content: "xr.Dataset") -> None:
    content.to_zarr(path, mode="w", consolidated=False, zarr_format=3)


MESH = Format(mesh_arrays, is_sample=True, is_mesh=True)
FORMATS = {
    ".zarr": Format(_zarr_arrays, _write_zarr, _zarr_attributes),
    ".nc": Format(_netcdf_arrays, _write_netcdf, _netcdf_attributes),
    ".npz": Format(_npz_arrays, _write_npz),
    ".mat": Format(_mat_arrays, _write_mat),
    ".npy": Format(_npy_arrays),
    ".cas.h5": MESH,  # before .h5, as which it ends, too
    ".h5": Format(_hdf5_arrays, _write_hdf5, _hdf5_attributes),
    ".hdf5": Format(_hdf5_arrays, _write_hdf5, _hdf5_attributes),
    ".pt": Format(torch_arrays),
    ".csv": Format(csv_arrays, is_sample=True),
    ".txt": Format(comsol_arrays, is_sample=True),
    ".dat": Format(comsol_arrays, is_sample=True),
    **dict.fromkeys((".vtu", ".vtk", ".vtp", ".vtm", ".vts", ".vtr", ".vti"), MESH),
    **dict.fromkeys((".cgns", ".exo", ".ex2", ".e", ".case", ".foam", ".cas"), MESH),
    "controldict": MESH,  # of an OpenFOAM case
}
"""The formats by the ends of files' names."""
