import gc
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

from flows.cli.main import parser
from storage.errors import StorageError
from storage.fields.files import (
    FORMATS,
    FieldFileInvalid,
    Format,
    read_fields,
    said_numbers,
    variable_names,
    write_fields,
)

VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7


def content() -> xr.Dataset:
    attributes = {"units": "Pa", "long_name": "of the fluid"}
    return xr.Dataset(
        {"pressure": (("sample", "x", "y"), VALUES, attributes)},
        coords={"x": np.linspace(0, 1, 3), "y": np.linspace(0, 2, 4)},
        attrs={"model": "lsm-darcy/1"},
    )


@pytest.mark.parametrize("ending", [".zarr", ".nc", ".npz", ".mat"])
def test_every_kind_keeps_names_values_and_axes(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"fields{ending}"
    write_fields(path, content())
    assert set(variable_names(path)) == {"pressure", "x", "y"}
    found = read_fields(path, ["pressure", "x"])
    assert found["pressure"].dtype == np.float32
    assert np.array_equal(found["pressure"], VALUES)
    assert np.array_equal(found["x"].ravel(), np.linspace(0, 1, 3))
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", [".zarr", ".nc"])
def test_labelled_kinds_say_what_the_numbers_mean(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"fields{ending}"
    write_fields(path, content())
    options = {"engine": "scipy"} if ending == ".nc" else {"engine": "zarr", "consolidated": False}
    with xr.open_dataset(path, **options) as dataset:
        assert dataset["pressure"].dims == ("sample", "x", "y")
        assert dataset["pressure"].attrs == {"units": "Pa", "long_name": "of the fluid"}
        assert dataset.attrs["model"] == "lsm-darcy/1"
        assert np.array_equal(dataset["y"], np.linspace(0, 2, 4))


@pytest.mark.parametrize("ending", [".zarr", ".nc", ".npz", ".mat"])
def test_a_file_says_numbers_of_itself(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"fields{ending}"
    write_fields(path, content().assign(viscosity=((), 0.01)))
    assert said_numbers(path, ["viscosity", "pressure", "mach"]) == {"viscosity": 0.01}
    if FORMATS[ending].attributes:
        path = tmp_path / f"other{ending}"
        write_fields(path, content().assign_attrs(mach=0.8, viscosity="thin", x=[1.0, 2.0]))
        assert said_numbers(path, ["viscosity", "mach", "x"]) == {"mach": 0.8}


def test_a_generated_dataset_says_the_parameters_of_its_problem(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "made.zarr", mode="w")
    group.attrs["provenance"] = {"kind": "generated", "parameters": {"viscosity": 0.02}}
    assert said_numbers(tmp_path / "made.zarr", ["viscosity"]) == {"viscosity": 0.02}


def test_an_hdf5_file_says_its_attributes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "made.h5", "w") as file:
        file["x"] = np.arange(3.0)
        file.attrs["viscosity"] = np.array([0.03])
    assert said_numbers(tmp_path / "made.h5", ["viscosity", "x"]) == {"viscosity": 0.03}


def test_netcdf_4_is_read_with_its_scales_and_gaps(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "packed.nc", "w") as file:
        file["height"] = np.array([[1, 2, -99]], dtype=np.int16)
        file["height"].attrs["scale_factor"] = np.array([0.5])
        file["height"].attrs["add_offset"] = 10.0
        file["height"].attrs["_FillValue"] = np.array([-99], dtype=np.int16)
    found = read_fields(tmp_path / "packed.nc", ["height"])["height"]
    assert np.array_equal(found, [[10.5, 11.0, np.nan]], equal_nan=True)


def test_a_name_in_netcdf_4_that_is_no_text_is_said_in_a_sentence(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "odd.nc", "w") as file:
        file[b"press\xff\xfe"] = np.zeros(3)
    with pytest.raises(FieldFileInvalid, match="has no variable pressure, it holds "):
        read_fields(tmp_path / "odd.nc", ["pressure"])


def test_a_missing_variable_is_said_with_those_that_are_there(tmp_path: Path) -> None:
    write_fields(tmp_path / "fields.npz", content())
    with pytest.raises(FieldFileInvalid, match="no variable velocity, it holds pressure, x, y"):
        read_fields(tmp_path / "fields.npz", ["velocity"])


def test_other_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    for name, sentence in (("fields.doc", "expected one of .zarr"), ("none.npz", "no file")):
        with pytest.raises(FieldFileInvalid, match=sentence):
            read_fields(tmp_path / name, ["pressure"])
    for ending in (".nc", ".npz", ".mat"):
        broken = tmp_path / f"broken{ending}"
        broken.write_bytes(b"nothing of the kind" * 40)
        with pytest.raises(StorageError, match="cannot be read"):
            read_fields(broken, ["pressure"])
    (tmp_path / "folder.zarr").mkdir()
    with pytest.raises(FieldFileInvalid, match="cannot be read"):
        read_fields(tmp_path / "folder.zarr", ["pressure"])


def test_half_a_file_is_closed_again(tmp_path: Path) -> None:
    write_fields(tmp_path / "fields.npz", content())
    whole = (tmp_path / "fields.npz").read_bytes()
    (tmp_path / "fields.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FieldFileInvalid, match="cannot be read"):
        read_fields(tmp_path / "fields.npz", ["pressure"])
    gc.collect()  # a file that is still open warns, which is an error here


def test_a_format_may_be_read_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fields(tmp_path / "fields.npz", content())
    npz = FORMATS[".npz"]
    monkeypatch.setitem(FORMATS, ".npz", Format(npz.arrays))
    assert np.array_equal(read_fields(tmp_path / "fields.npz", ["pressure"])["pressure"], VALUES)
    with pytest.raises(FieldFileInvalid, match=r"expected one of \.zarr, \.nc, \.mat"):
        write_fields(tmp_path / "other.npz", content())


def test_the_help_of_predict_names_every_format() -> None:
    (verbs,) = (each.choices for each in parser()._actions if isinstance(each.choices, dict))
    said = verbs["predict"].format_help()
    assert all(ending in said for ending, each in FORMATS.items() if not each.is_mesh)
    assert "or a mesh" in " ".join(said.split())


def test_arrays_that_could_run_code_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", pressure=np.array([{"a": 1}], dtype=object))
    with pytest.raises(FieldFileInvalid, match="cannot be read"):
        read_fields(tmp_path / "objects.npz", ["pressure"])


def test_an_older_file_is_replaced_and_an_older_folder_kept(tmp_path: Path) -> None:
    (tmp_path / "fields.npz").write_bytes(b"old")
    write_fields(tmp_path / "fields.npz", content())
    assert variable_names(tmp_path / "fields.npz") == ["pressure", "x", "y"]
    write_fields(tmp_path / "fields.zarr", content())
    with pytest.raises(FieldFileInvalid, match="is there already"):
        write_fields(tmp_path / "fields.zarr", content())
