import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from storage.matlab5 import find_variables
from storage.published_files import open_array

RANDOM = np.random.default_rng(0)
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


@pytest.mark.parametrize("compressed", [False, True])
def test_variables_are_those_that_scipy_reads(compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "values.mat"
    savemat(path, ARRAYS, do_compression=compressed)
    expected = loadmat(path)
    found = find_variables(path)
    assert list(found) == list(ARRAYS)
    for name, place in found.items():
        assert place.shape == expected[name].shape
        assert (place.packed is not None) == compressed
        if place.n_bytes:
            array = open_array(path, name).unpacked(tmp_path / f"{name}.unpacked")
            np.testing.assert_array_equal(array[...], expected[name], err_msg=name)
            np.testing.assert_array_equal(array[-1:, ::2], expected[name][-1:, ::2])


def big_endian_file(values: np.ndarray) -> bytes:
    """Return a file as machines of the other byte order wrote it."""
    flags = struct.pack(">4I", 6, 8, 6, 0)
    dimensions = struct.pack(">2I2i", 5, 8, *values.shape)
    name = struct.pack(">HH", 1, 1) + b"u\0\0\0"
    content = values.astype(">f8").tobytes("F")
    array = flags + dimensions + name + struct.pack(">2I", 9, len(content)) + content
    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI"
    return header + struct.pack(">2I", 14, len(array)) + array


def test_the_other_byte_order_is_read(tmp_path: Path) -> None:
    values = RANDOM.standard_normal((3, 4))
    path = tmp_path / "values.mat"
    path.write_bytes(big_endian_file(values))
    np.testing.assert_array_equal(loadmat(path)["u"], values)
    array = open_array(path, "u", (3, 4)).unpacked(tmp_path / "scratch")
    np.testing.assert_array_equal(array[...], values)


def test_a_compressed_array_larger_than_a_piece_is_unpacked_whole(tmp_path: Path) -> None:
    values = RANDOM.standard_normal((300, 1000))
    path = tmp_path / "values.mat"
    savemat(path, {"u": values, "zeros": np.zeros((2000, 1000))}, do_compression=True)
    found = find_variables(path)
    for name, expected in (("u", values), ("zeros", np.zeros((2000, 1000)))):
        unpacked = io.BytesIO()
        found[name].unpack(path, unpacked)
        assert unpacked.getvalue() == expected.tobytes("F")


def test_a_wrong_checksum_is_found(tmp_path: Path) -> None:
    path = tmp_path / "values.mat"
    savemat(path, {"u": RANDOM.standard_normal((50, 50))}, do_compression=True)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match="incorrect data check"):
        find_variables(path)["u"].unpack(path, io.BytesIO())


def test_sizes_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    content = bytearray(big_endian_file(np.zeros((3, 4))))
    # The second dimension stands 44 bytes after the header of the file and of the array.
    content[164:168] = struct.pack(">i", 5)
    path = tmp_path / "values.mat"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"u of shape \(3, 5\) has 96 bytes"):
        find_variables(path)


@pytest.mark.parametrize("n_bytes", [130, 140, 170, 200, 260])
def test_a_file_that_ends_early_is_found_wherever_it_ends(n_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "values.mat"
    path.write_bytes(big_endian_file(np.zeros((3, 4)))[:n_bytes])
    if n_bytes == 130:
        assert find_variables(path) == {}
    else:
        with pytest.raises(EOFError, match="should have 280 bytes"):
            find_variables(path)


def test_a_name_that_inflates_without_end_is_refused_before_it_is_read(tmp_path: Path) -> None:
    name = struct.pack("<2I", 1, 2**31) + bytes(2**22)
    flags = struct.pack("<4I", 6, 8, 6, 0)
    dimensions = struct.pack("<4I", 5, 8, 1, 1)
    packed = zlib.compress(struct.pack("<2I", 14, 2**31) + flags + dimensions + name)
    file = tmp_path / "bomb.mat"
    file.write_bytes(b" " * 124 + b"\x00\x01IM" + struct.pack("<2I", 15, len(packed)) + packed)
    with pytest.raises(ValueError, match="2147483648 bytes where flags"):
        find_variables(file)
