"""Arrays in MATLAB 5 to 7 files, found without reading them.

scipy reads such files, but `loadmat` ends the whole process (a segmentation fault) for one in some
hundred damaged ones, and holds twice the size of a variable in memory. Here an array that is not
compressed is mapped where it lies; a compressed one (version 7) is inflated into memory.

The format: a header of 128 bytes, then elements, each a tag of two 32-bit words, type and size,
and so many bytes. A compressed element holds an array element, which holds flags, dimensions,
name and values as elements, padded to 8 bytes. An element of up to 4 bytes may stand in its tag.
Reference: MathWorks, "MAT-File Format", chapter 1.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from storage.errors import PublishedFileInvalid, translated

Array = np.ndarray[Any, np.dtype[Any]]

HEADER_BYTES = 128
TAG_BYTES = 8
HEADING_BYTES = 2**16
"""How much of an array is looked at for its flags, dimensions and name."""
ARRAY, COMPRESSED = 14, 15
# The types of stored values. MATLAB stores doubles that are small whole numbers in smaller types.
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NOT_NUMBERS = {1: "a cell", 2: "a struct", 3: "an object", 4: "text", 5: "sparse"}
FIRST_NUMERIC_CLASS, LAST_NUMERIC_CLASS = 6, 15
COMPLEX = 0x0800


@dataclass(frozen=True)
class MatArray:
    """A variable of a file, or in `problem` why its values are not real numbers.

    `start` counts from the beginning of the file, or of the inflated content if the values are
    compressed; then `packed` is where the compressed bytes are in the file.
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int
    packed: range | None
    problem: str | None = None

    @property
    def n_bytes(self) -> int:
        """Return the size of the values."""
        return prod(self.shape) * self.dtype.itemsize

    def load(self) -> Array:
        """Return all values, mapped from the file if they are not compressed."""
        if self.n_bytes == 0:
            return np.empty(self.shape, self.dtype)
        if self.packed is None:
            return np.memmap(self.path, self.dtype, "r", self.start, self.shape, order="F")
        with refusing_damage(self.path, self.name), self.path.open("rb") as file:
            file.seek(self.packed.start)
            inflating = zlib.decompressobj()
            # A few bytes more than there should be: at the end zlib compares its checksum.
            content = inflating.decompress(
                file.read(len(self.packed)), self.start + self.n_bytes + TAG_BYTES
            )
            if not inflating.eof:
                raise EOFError("the compressed bytes do not end where the values do")
            values = np.frombuffer(content, self.dtype, prod(self.shape), self.start)
            return values.reshape(self.shape, order="F")


def refusing_damage(path: Path, variable: str) -> AbstractContextManager[None]:
    """Turn whatever damaged bytes lead a reader of MATLAB files to into one sentence."""
    return translated(
        Exception,
        into=lambda error: PublishedFileInvalid(
            f"variable {variable} of {path} cannot be read from the {path.stat().st_size} bytes "
            f"found ({' '.join(str(error).split())}), expected a whole MATLAB file; fetch it again"
        ),
    )


def find_variables(path: Path) -> dict[str, MatArray]:
    """Return the variables of a file by name; some exception or other if it is damaged."""
    return {variable.name: variable for variable in _variables(path)}


def _variables(path: Path) -> Iterator[MatArray]:
    size = path.stat().st_size
    with path.open("rb") as file:
        order = "<" if file.read(HEADER_BYTES)[126:] == b"IM" else ">"
        position = HEADER_BYTES
        while position + TAG_BYTES <= size:
            file.seek(position)
            kind, n_bytes = struct.unpack(f"{order}2I", file.read(TAG_BYTES))
            content = range(position + TAG_BYTES, position + TAG_BYTES + n_bytes)
            if content.stop > size:
                raise EOFError(f"the file should have {content.stop} bytes at least")
            heading = file.read(min(n_bytes, HEADING_BYTES))
            if kind == COMPRESSED:
                # A small file can inflate to any size.
                heading = zlib.decompressobj().decompress(heading, HEADING_BYTES)
                yield _variable(path, heading, order, TAG_BYTES, content)
            elif kind == ARRAY:
                yield _variable(path, heading, order, 0, None, content.start)
            position = content.stop


def _variable(
    path: Path, heading: bytes, order: str, at: int, packed: range | None, before: int = 0
) -> MatArray:
    """Return the array whose flags are `at` a place of its heading."""
    _, flags, at = _element(heading, order, at)
    _, sizes, at = _element(heading, order, at)
    _, letters, at = _element(heading, order, at)
    (word,) = struct.unpack_from(f"{order}I", heading, flags.start)
    shape = struct.unpack_from(f"{order}{len(sizes) // 4}i", heading, sizes.start)
    name = heading[letters.start : letters.stop].decode("ascii")
    number = word & 0xFF
    if not FIRST_NUMERIC_CLASS <= number <= LAST_NUMERIC_CLASS or word & COMPLEX:
        problem = "complex" if word & COMPLEX else NOT_NUMBERS.get(number, f"of class {number}")
        return MatArray(path, name, shape, np.dtype("f8"), 0, packed, problem)
    kind, values, _ = _element(heading, order, at)
    array = MatArray(
        path, name, shape, np.dtype(order + TYPES[kind]), before + values.start, packed
    )
    if array.n_bytes != len(values):
        raise ValueError(f"{name} of shape {shape} has {len(values)} bytes")
    return array


def _element(content: bytes, order: str, at: int) -> tuple[int, range, int]:
    """Return type and place of the element at a place, and the place of the next one."""
    (word,) = struct.unpack_from(f"{order}I", content, at)
    if word >> 16:
        return word & 0xFFFF, range(at + 4, at + 4 + (word >> 16)), at + TAG_BYTES
    (n_bytes,) = struct.unpack_from(f"{order}I", content, at + 4)
    start = at + TAG_BYTES
    return word, range(start, start + n_bytes), start + n_bytes + -n_bytes % 8
