from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeAlias

import h5py
import numpy as np
import pytest
from scipy.io import loadmat

from storage.datasets.reader import Dataset, open_dataset
from storage.errors import NotADataset
from storage.location import Location
from storage.official.catalogue import published_benchmarks
from storage.official.conversion import convert_published
from storage.official.download import download_published
from storage.official.export import export_dataset, exported_benchmark
from tests.storage.datasets.small import small_schema, write_whole
from tests.storage.official.small_files import (
    expected_variables,
    raw_arrays,
    small_benchmark,
    write_official,
)

SPLITS = ("train", "validation", "test")
Converted: TypeAlias = Callable[[str], Dataset]


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """Return a function that gives a dataset with the variables and axes of a benchmark."""

    @cache
    def dataset(name: str) -> Dataset:
        folder = tmp_path_factory.mktemp(name)
        benchmark, root = small_benchmark(name), Location.parse(str(folder / "store"))
        write_official(raw_arrays(name), folder / "mirror")
        download_published(benchmark, root, [str(folder / "mirror")])
        return open_dataset(convert_published(benchmark, root, stride=1))

    return dataset


def values(dataset: Dataset, variable: str) -> dict[str, np.ndarray]:
    return {split: dataset.part(split, [variable])[:][variable] for split in SPLITS}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[] if name in ("darcy", "elasticity_p", "airfoil") else [pytest.mark.slow]
        )
        for name in published_benchmarks()
    ],
)
def test_what_is_exported_comes_back_the_same(
    name: str, tmp_path: Path, converted: Converted
) -> None:
    dataset = converted(name)
    paths = export_dataset(dataset, tmp_path / "out")
    assert [str(path.relative_to(tmp_path / "out")) for path in paths] == [
        file.path for file in published_benchmarks()[name].files
    ]
    exported = exported_benchmark(str(tmp_path / "out"), name)
    assert exported is not None
    root = Location.parse(str(tmp_path / "other"))
    download_published(exported, root, [str(tmp_path / "out")])
    back = open_dataset(convert_published(exported, root))
    for variable in exported.variables:
        for split, found in values(back, variable.name).items():
            np.testing.assert_array_equal(found, values(dataset, variable.name)[split])
    first, second = dataset.to_xarray(), back.to_xarray()
    for coordinate in first.coords:
        np.testing.assert_array_equal(second[coordinate], first[coordinate])
    assert back.attributes["positions"] == dataset.attributes["positions"]
    assert back.provenance["kind"] == "exported"


def test_darcy_is_exported_as_the_released_code_reads_it(
    tmp_path: Path, converted: Converted
) -> None:
    dataset = converted("darcy")
    export_dataset(dataset, tmp_path / "out")
    train = loadmat(tmp_path / "out" / "piececonst_r421_N1024_smooth1.mat")
    test = loadmat(tmp_path / "out" / "piececonst_r421_N1024_smooth2.mat")
    assert train["coeff"].shape == (14, 21, 21)
    np.testing.assert_array_equal(train["sol"][:14], values(dataset, "pressure")["train"])
    np.testing.assert_array_equal(test["coeff"][:8], values(dataset, "coefficient")["test"])
    assert train["sol"].dtype == np.float32


def test_navier_stokes_is_exported_as_the_released_code_reads_it(
    tmp_path: Path, converted: Converted
) -> None:
    dataset = converted("navier_stokes")
    (path,) = export_dataset(dataset, tmp_path / "out")
    vorticity = loadmat(path)["u"]
    history, future = values(dataset, "vorticity_history"), values(dataset, "vorticity_future")
    np.testing.assert_array_equal(vorticity[:14, ..., :10], history["train"])
    np.testing.assert_array_equal(vorticity[-8:, ..., 10:], future["test"])
    np.testing.assert_array_equal(loadmat(path)["t"], np.arange(1.0, 21.0)[None, :])


def test_flows_on_meshes_are_exported_as_the_released_code_reads_them(
    tmp_path: Path, converted: Converted
) -> None:
    dataset = converted("airfoil")
    export_dataset(dataset, tmp_path / "out")
    mesh = np.load(tmp_path / "out" / "naca" / "NACA_Cylinder_X.npy")
    flow = np.load(tmp_path / "out" / "naca" / "NACA_Cylinder_Q.npy")
    assert (flow.shape, flow.dtype) == ((25, 5, 13, 7), np.float64)
    np.testing.assert_array_equal(flow[:14, 4], values(dataset, "mach")["train"])
    # The test samples follow the training samples.
    np.testing.assert_array_equal(flow[14:22, 4], values(dataset, "mach")["test"])
    np.testing.assert_array_equal(mesh[14:22], values(dataset, "mesh_x")["test"])


def test_elasticity_is_exported_with_the_sample_axis_last(
    tmp_path: Path, converted: Converted
) -> None:
    dataset = converted("elasticity_p")
    export_dataset(dataset, tmp_path / "out")
    points = np.load(tmp_path / "out" / "Meshes" / "Random_UnitCell_XY_10.npy")
    assert points.shape == (12, 2, 25)
    last = values(dataset, "points")["test"][-1]
    np.testing.assert_array_equal(points[..., -1], last)


def test_version_7_3_is_read_by_h5py_with_reversed_axes(
    tmp_path: Path, converted: Converted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.official.export.MAT5_BYTES", 1000)
    dataset = converted("plasticity")
    (path,) = export_dataset(dataset, tmp_path / "out")
    assert path.read_bytes()[:19] == b"MATLAB 7.3 MAT-file"
    with h5py.File(path) as file:
        assert file["output"].shape == (4, 6, 5, 11, 25)
        assert file["output"].attrs["MATLAB_class"] == b"double"
        np.testing.assert_array_equal(file["output"][...].T[:14], values(dataset, "state")["train"])


def test_a_variable_too_large_for_version_5_goes_into_7_3(
    tmp_path: Path, converted: Converted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.official.export.MAT5_BYTES", 1000)
    (path,) = export_dataset(converted("burgers"), tmp_path / "out")
    with h5py.File(path) as file:
        assert file["u"].shape == (16, 25)


def test_the_same_data_is_exported_to_the_same_bytes(tmp_path: Path, converted: Converted) -> None:
    dataset = converted("burgers")
    (first,) = export_dataset(dataset, tmp_path / "first")
    (second,) = export_dataset(dataset, tmp_path / "second")
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in (tmp_path / "first").iterdir()) == [
        "burgers_data_R10.mat",
        "lsm-export-burgers.json",
    ]


def test_a_folder_without_an_export_holds_none(tmp_path: Path) -> None:
    assert exported_benchmark(str(tmp_path), "darcy") is None


def test_a_dataset_of_something_else_is_not_exported(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "small.zarr"))
    write_whole(location, small_schema())
    with pytest.raises(NotADataset, match="benchmark small, which has no official files"):
        export_dataset(open_dataset(location), tmp_path / "out")


def test_a_dataset_without_a_variable_of_the_files_is_not_exported(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "small.zarr"))
    write_whole(location, small_schema(attributes={"benchmark": "burgers"}))
    with pytest.raises(NotADataset, match=r"initial with axes None, .* need \('x',\)"):
        export_dataset(open_dataset(location), tmp_path / "out")


def test_the_exported_values_are_those_of_the_files(converted: Converted) -> None:
    dataset = converted("burgers")
    expected = expected_variables("burgers", raw_arrays("burgers"), 1)["final"]
    np.testing.assert_array_equal(
        values(dataset, "final")["train"], expected[:14].astype(np.float32)
    )
