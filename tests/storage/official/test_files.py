import os
import struct
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import loadmat, savemat

from storage.errors import PublishedFileInvalid
from storage.fields.files import variable_names
from storage.official.files import as_dask, kind_of, open_array, require_finite
from tests.storage.official.small_files import write_mat73

VALUES = np.random.default_rng(0).standard_normal((7, 5, 4))

RANDOM = np.random.default_rng(1)
ARRAYS = {
    "double": RANDOM.standard_normal((5, 4, 3)),
    "single": RANDOM.standard_normal((7, 300)).astype(np.float32),
    "whole": np.arange(24, dtype=np.float64).reshape(2, 3, 4),
    "bytes": RANDOM.integers(0, 256, (3, 2), dtype=np.uint8),
    "signed": RANDOM.integers(-100, 100, (2, 2, 2), dtype=np.int16),
    "long": RANDOM.integers(-100, 100, (4, 1), dtype=np.int64),
    "logical": np.array([[True, False, True]]),
    "one": np.array([[1.5]]),
    "in_its_tag": np.array([[1, 2]], dtype=np.uint8),
    "empty": np.zeros((0, 3)),
    "a_name_that_is_rather_long": np.ones((1, 2)),
}


def written(folder: Path, kind: str) -> tuple[Path, str | None]:
    """Write the values in one format; return the file and the variable's name in it."""
    if kind.startswith("npy"):
        path = folder / "values.npy"
        np.save(path, np.asfortranarray(VALUES) if kind == "npy by columns" else VALUES)
        return path, None
    path = folder / "values.mat"
    if kind == "mat 7.3":
        write_mat73(path, {"u": VALUES, "t": np.arange(3.0)[None]})
    else:
        savemat(path, {"u": VALUES, "t": np.arange(3.0)}, do_compression=kind == "mat 7")
    return path, "u"


KINDS = ("npy", "npy by columns", "mat 5", "mat 7", "mat 7.3")


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_array(kind: str, tmp_path: Path) -> None:
    path, variable = written(tmp_path, kind)
    array = open_array(path, variable, VALUES.shape)
    assert array.shape == VALUES.shape
    for index in (
        slice(None),
        slice(2, 5),
        3,
        (slice(1, 6, 2), slice(None), slice(None, None, 3)),
        (slice(2, 3), 4, slice(0, 2)),
    ):
        np.testing.assert_array_equal(array[index], VALUES[index])


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_can_be_read_lazily_in_pieces(kind: str, tmp_path: Path) -> None:
    path, variable = written(tmp_path, kind)
    lazy = as_dask(open_array(path, variable), piece_bytes=200)
    assert lazy.npartitions > 1
    np.testing.assert_array_equal(
        lazy[1:6, ::2].transpose(2, 0, 1).compute(scheduler="sync"),
        VALUES[1:6, ::2].transpose(2, 0, 1),
    )


@pytest.mark.parametrize(
    ("kind", "piece_bytes", "expected"),
    [
        # Four bytes less than a whole last axis and a whole last plane; then two planes.
        ("npy", 31, (1, 1, 3)),
        ("npy", 8 * 4 * 2, (1, 2, 4)),
        ("npy", 8 * 20 * 2, (2, 5, 4)),
        ("npy by columns", 8 * 7 * 2, (7, 2, 1)),
        ("mat 5", 8 * 7 * 2, (7, 2, 1)),
        ("mat 7", 8 * 35 * 3, (7, 5, 3)),
        # The file has chunks of 3, 2 and 2 entries along these axes.
        ("mat 7.3", 1, (3, 2, 2)),
        ("mat 7.3", 8 * 3 * 4 * 2, (3, 4, 2)),
        ("mat 7.3", 8 * 3 * 6 * 4, (3, 5, 4)),
        ("mat 7.3", 10**6, (7, 5, 4)),
    ],
)
def test_pieces_are_what_the_file_stores_together(
    kind: str, piece_bytes: int, expected: tuple[int, ...], tmp_path: Path
) -> None:
    path, variable = written(tmp_path, kind)
    lazy = as_dask(open_array(path, variable), piece_bytes=piece_bytes)
    assert lazy.chunksize == expected


def test_the_kind_is_told_by_the_first_bytes(tmp_path: Path) -> None:
    for kind, expected in (("npy", "npy"), ("mat 5", "mat"), ("mat 7.3", "mat 7.3")):
        assert kind_of(written(tmp_path, kind)[0].read_bytes()[:520]) == expected
    assert kind_of(b"PK\x03\x04rest") == "zip"
    assert kind_of(b"<!DOCTYPE html><html>" + b" " * 600) is None
    assert kind_of(b"") is None


def refusal(path: Path, variable: str | None, shape: tuple[int, ...] | None = None) -> str:
    with pytest.raises(PublishedFileInvalid) as caught:
        open_array(path, variable, shape)[:]
    sentence = str(caught.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("kind", ["mat 5", "mat 7.3"])
def test_a_missing_variable_is_named_with_those_that_are_there(kind: str, tmp_path: Path) -> None:
    path, _ = written(tmp_path, kind)
    assert refusal(path, "coeff").endswith("has no variable coeff, it holds t, u")


@pytest.mark.parametrize("kind", KINDS)
def test_another_shape_is_refused(kind: str, tmp_path: Path) -> None:
    path, variable = written(tmp_path, kind)
    sentence = refusal(path, variable, (8, 5, 4))
    assert sentence.endswith("has shape (7, 5, 4), expected (8, 5, 4)")
    assert variable is None or "variable u of" in sentence


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_bytes_are_found(kind: str, tmp_path: Path) -> None:
    path, variable = written(tmp_path, kind)
    os.truncate(path, path.stat().st_size // 2)
    assert f"{path.stat().st_size} bytes" in refusal(path, variable)


def test_damaged_chunks_are_found(tmp_path: Path) -> None:
    path, variable = written(tmp_path, "mat 7.3")
    array = open_array(path, variable)
    with h5py.File(path) as file:
        chunk = file["u"].id.get_chunk_info(0)
    with path.open("r+b") as opened:
        opened.seek(chunk.byte_offset + 2)
        opened.write(b"\xff" * 8)
    with pytest.raises(PublishedFileInvalid, match=r"variable u of .* cannot be read"):
        array[:]


@pytest.mark.parametrize(
    ("content", "variable"),
    [(b"<html>quota exceeded</html>", None), (b"", "u"), (b"PK\x03\x04", "u")],
)
def test_what_is_no_array_file_is_refused(
    content: bytes, variable: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "values.mat"
    path.write_bytes(content)
    assert "expected an .npy file or a MATLAB file" in refusal(path, variable)


def test_a_file_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    assert "is of the kind npy, expected a MATLAB file with u" in refusal(
        written(tmp_path, "npy")[0], "u"
    )
    assert "is of the kind mat, expected an .npy file" in refusal(
        written(tmp_path, "mat 5")[0], None
    )


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "values.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert "cannot be read as an array" in refusal(path, None)


def test_what_is_not_numbers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "values.mat"
    savemat(path, {"cell": np.array(["a", 1], dtype=object), "text": "word", "z": np.array([1j])})
    assert "is a cell, expected an array of real numbers" in refusal(path, "cell")
    assert "is text, expected" in refusal(path, "text")
    assert "is complex, expected" in refusal(path, "z")
    np.save(tmp_path / "words.npy", np.array(["a"]))
    assert "is dtype <U1" in refusal(tmp_path / "words.npy", None)


def test_data_outside_the_file_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(np.arange(4.0).tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["u"] = VALUES
    path = tmp_path / "values.mat"
    with h5py.File(path, "w") as file:
        file["link"] = h5py.ExternalLink("other.h5", "u")
        file.create_dataset("raw", (4,), "f8", external=[(str(secret), 0, 32)])
        file.create_group("group")
    assert "a reference to another file" in refusal(path, "link")
    assert "a reference to another file" in refusal(path, "raw")
    assert "is a group" in refusal(path, "group")


def test_the_first_sample_with_nan_is_named() -> None:
    values = VALUES.copy()
    values[4, 1, 2] = np.inf
    values[4, 1, 3] = values[6, 0, 0] = np.nan
    require_finite(VALUES, Path("f.npy"), None, 10)
    with pytest.raises(PublishedFileInvalid) as caught:
        require_finite(values, Path("f.mat"), "u", 10)
    assert str(caught.value) == (
        "variable u of f.mat has 2 values of NaN or infinity in sample 14, "
        "expected finite numbers; fetch it again"
    )


def test_a_header_that_is_no_python_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(3))
    content = bytearray(path.read_bytes())
    content[60:62] = b"(("
    path.write_bytes(content)
    with pytest.raises(PublishedFileInvalid, match="cannot be read as an array"):
        open_array(path)


@pytest.mark.parametrize("compressed", [False, True])
def test_variables_of_matlab_5_and_7_are_those_that_scipy_reads(
    compressed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "values.mat"
    savemat(path, ARRAYS, do_compression=compressed)
    assert variable_names(path) == list(ARRAYS)
    for name, expected in loadmat(path, variable_names=list(ARRAYS)).items():
        if name in ARRAYS:
            array = open_array(path, name, expected.shape)
            np.testing.assert_array_equal(array[...], expected, err_msg=name)
            np.testing.assert_array_equal(array[-1:, ::2], expected[-1:, ::2])


def big_endian_file(values: np.ndarray) -> bytes:
    """Return a file as machines of the other byte order wrote it."""
    flags = struct.pack(">4I", 6, 8, 6, 0)
    dimensions = struct.pack(">2I2i", 5, 8, *values.shape)
    name = struct.pack(">HH", 1, 1) + b"u\0\0\0"
    content = values.astype(">f8").tobytes("F")
    array = flags + dimensions + name + struct.pack(">2I", 9, len(content)) + content
    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI"
    return header + struct.pack(">2I", 14, len(array)) + array


def test_the_other_byte_order_of_matlab_5_is_read(tmp_path: Path) -> None:
    path = tmp_path / "values.mat"
    path.write_bytes(big_endian_file(VALUES[0]))
    np.testing.assert_array_equal(open_array(path, "u", (5, 4))[:], VALUES[0])


def test_a_wrong_checksum_of_matlab_7_is_found(tmp_path: Path) -> None:
    path, variable = written(tmp_path, "mat 7")
    content = bytearray(path.read_bytes())
    (n_bytes,) = struct.unpack("<I", content[132:136])
    content[136 + n_bytes - 1] ^= 1
    path.write_bytes(content)
    assert "cannot be read" in refusal(path, variable)


def test_sizes_of_matlab_5_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    content = bytearray(big_endian_file(np.zeros((3, 4))))
    # The second dimension stands 36 bytes after the header of the file and of the array.
    content[164:168] = struct.pack(">i", 5)
    path = tmp_path / "values.mat"
    path.write_bytes(content)
    assert "cannot be read" in refusal(path, "u")


@pytest.mark.parametrize("n_bytes", [130, 140, 170, 200, 260])
def test_a_matlab_5_file_that_ends_early_is_found_wherever_it_ends(
    n_bytes: int, tmp_path: Path
) -> None:
    path = tmp_path / "values.mat"
    path.write_bytes(big_endian_file(np.zeros((3, 4)))[:n_bytes])
    refusal(path, "u")


def test_a_name_that_inflates_without_end_is_refused(tmp_path: Path) -> None:
    name = struct.pack("<2I", 1, 2**31) + bytes(2**22)
    flags = struct.pack("<4I", 6, 8, 6, 0)
    dimensions = struct.pack("<4I", 5, 8, 1, 1)
    packed = zlib.compress(struct.pack("<2I", 14, 2**31) + flags + dimensions + name)
    path = tmp_path / "bomb.mat"
    path.write_bytes(b" " * 124 + b"\x00\x01IM" + struct.pack("<2I", 15, len(packed)) + packed)
    assert "cannot be read" in refusal(path, "u")
