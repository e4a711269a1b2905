"""Files that people bring: what each reader finds in them."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from storage.errors import StorageError
from storage.fields.files import FieldFileInvalid, open_arrays

VALUES = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


def test_tensors_are_read_without_torch_in_any_layout(tmp_path: Path) -> None:
    tensor = torch.tensor(VALUES)
    torch.save({"a": tensor, "b": tensor.mT, "c": {"d": tensor > 7}}, tmp_path / "f.pt")
    found = open_arrays(tmp_path / "f.pt")
    assert np.array_equal(found["a"][1:], VALUES[1:])
    assert np.array_equal(found["b"][0], VALUES[0].T)
    assert np.array_equal(found["c/d"][...], VALUES > 7)


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("run",))


def test_a_pickle_that_would_run_something_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"a": Harmful()}, tmp_path / "f.pt")
    with pytest.raises(FieldFileInvalid, match=r"asks for (builtins|__builtin__)\.print"):
        open_arrays(tmp_path / "f.pt")
    assert capsys.readouterr().out == ""


def test_hdf5_is_read_by_paths_and_in_parts(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["t0_fields/u"] = VALUES
        file["t0_fields/u"].attrs["units"] = "m"
    (found,) = open_arrays(tmp_path / "f.h5").items()
    assert found[0] == "t0_fields/u"
    assert found[1].unit == "m"
    assert np.array_equal(found[1][2], VALUES[2])


def test_packed_and_plain_npz_are_the_same(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", a=VALUES, b=np.asfortranarray(VALUES))
    np.savez_compressed(tmp_path / "packed.npz", a=VALUES, b=np.asfortranarray(VALUES))
    for name in ("plain.npz", "packed.npz"):
        found = open_arrays(tmp_path / name)
        assert all(np.array_equal(found[each][1], VALUES[1]) for each in "ab")


def test_columns_have_names_and_units(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("x;p [Pa];kind\n0.5;1;wall\n1.5;2;inlet\n")
    found = open_arrays(tmp_path / "f.csv")
    assert list(found) == ["x", "p"]
    assert found["p"].unit == "Pa"
    assert np.array_equal(found["p"][...], [1, 2])
    (tmp_path / "g.csv").write_text("x,p\n1,2,3\n")
    with pytest.raises(FieldFileInvalid, match="line 2 has not the 2 columns"):
        open_arrays(tmp_path / "g.csv")


def test_comsol_columns_of_several_times_are_one_array(tmp_path: Path) -> None:
    text = "% Model:  a.mph\n% x  y  u (m/s) @ t=0  u (m/s) @ t=0.5\n0 1 2 3\n4 5 6 7\n"
    (tmp_path / "f.txt").write_text(text)
    found = open_arrays(tmp_path / "f.txt")
    assert np.array_equal(found["u"][...], [[2, 3], [6, 7]])
    assert found["u"].unit == "m/s"


def test_a_damaged_array_alone_in_its_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "f.npy").write_bytes(b"\x93NUMPY broken")
    with pytest.raises(StorageError, match=r"f\.npy"):
        open_arrays(tmp_path / "f.npy")
