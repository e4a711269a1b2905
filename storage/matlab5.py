"""Arrays in MATLAB 5 to 7 files, found without reading them and unpacked in bounded memory.

Loading a variable of such a file whole takes twice its size. Here an uncompressed array is mapped
where it lies in the file, and a compressed one (version 7) is inflated into a file of its own.

The format: a header of 128 bytes, then elements, each a tag of two 32-bit words, type and size,
and so many bytes. A compressed element holds an array element, which holds flags, dimensions,
name and values as elements, padded to 8 bytes. An element of up to 4 bytes may stand in its tag.
Reference: MathWorks, "MAT-File Format", chapter 1.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

HEADER_BYTES = 128
ARRAY, COMPRESSED = 14, 15
# The types of stored values. MATLAB stores doubles that are small whole numbers in smaller types.
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NOT_NUMBERS = {1: "a cell", 2: "a struct", 3: "an object", 4: "text", 5: "sparse"}
FIRST_NUMERIC_CLASS, LAST_NUMERIC_CLASS = 6, 15
COMPLEX = 0x0800
PIECE = 2**20
LARGEST_HEADING = 2**16


@dataclass(frozen=True)
class Mat5Variable:
    """Where the values of a variable lie, or in `problem` why they are not real numbers.

    `start` counts from the beginning of the file, or of the inflated content if the values are
    compressed; then `packed` is where the compressed bytes are in the file.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int
    packed: range | None
    problem: str | None = None

    @property
    def n_bytes(self) -> int:
        """Return the size of the values."""
        return prod(self.shape) * self.dtype.itemsize

    def unpack(self, path: Path, target: IO[bytes]) -> None:
        """Inflate compressed values into a file, in MATLAB's order; EOFError if they end early."""
        assert self.packed is not None
        with path.open("rb") as file:
            content = _Inflated(file, self.packed)
            for n_bytes in _pieces(self.start):
                content.read(n_bytes)
            for n_bytes in _pieces(self.n_bytes):
                target.write(content.read(n_bytes))
            content.require_end()


def find_variables(path: Path) -> dict[str, Mat5Variable]:
    """Return the variables of a file by name; EOFError, ValueError or zlib.error if damaged."""
    return dict(_variables(path))


def _variables(path: Path) -> Iterator[tuple[str, Mat5Variable]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        order = "<" if file.read(HEADER_BYTES)[126:] == b"IM" else ">"
        position = HEADER_BYTES
        while position + 8 <= size:
            file.seek(position)
            kind, n_bytes = struct.unpack(f"{order}2I", file.read(8))
            content = range(position + 8, position + 8 + n_bytes)
            if content.stop > size:
                raise EOFError(f"the file should have {content.stop} bytes at least")
            if kind == COMPRESSED:
                inflated = _Cursor(_Inflated(file, content).read, order, 0)
                inflated.take(8)
                yield _variable(inflated, content)
            elif kind == ARRAY:
                yield _variable(_Cursor(file.read, order, content.start), None)
            position = content.stop


def _variable(cursor: "_Cursor", packed: range | None) -> tuple[str, Mat5Variable]:
    """Return name and place of the array at whose flags the cursor stands."""
    flags, _ = cursor.unpack("2I", cursor.element())
    dimensions = cursor.element()
    shape = tuple(cursor.unpack(f"{len(dimensions) // 4}i", dimensions))
    name = cursor.element().decode("ascii")
    number = flags & 0xFF
    if not FIRST_NUMERIC_CLASS <= number <= LAST_NUMERIC_CLASS or flags & COMPLEX:
        problem = "complex" if flags & COMPLEX else NOT_NUMBERS.get(number, f"of class {number}")
        return name, Mat5Variable(shape, np.dtype("f8"), 0, packed, problem)
    kind, n_bytes, start = cursor.tag()
    variable = Mat5Variable(shape, np.dtype(cursor.order + TYPES[kind]), start, packed)
    if variable.n_bytes != n_bytes:
        raise ValueError(f"{name} of shape {shape} has {n_bytes} bytes")
    return name, variable


class _Cursor:
    """Takes elements one after another and knows where it stands."""

    def __init__(self, read: Callable[[int], bytes], order: str, position: int) -> None:
        self.order = order
        self._read = read
        self._position = position

    def take(self, n_bytes: int) -> bytes:
        content = self._read(n_bytes)
        if len(content) < n_bytes:
            raise EOFError(f"{n_bytes - len(content)} bytes are missing")
        self._position += n_bytes
        return content

    def unpack(self, layout: str, content: bytes) -> tuple[int, ...]:
        return struct.unpack(self.order + layout, content)

    def tag(self) -> tuple[int, int, int]:
        """Return type and size of an element and where its content starts; stand there."""
        (word,) = self.unpack("I", self.take(4))
        if word >> 16:
            return word & 0xFFFF, word >> 16, self._position
        (n_bytes,) = self.unpack("I", self.take(4))
        return word, n_bytes, self._position

    def element(self) -> bytes:
        """Return the content of an element; stand after it and its padding."""
        before = self._position
        _, n_bytes, start = self.tag()
        if n_bytes > LARGEST_HEADING:
            # A small file can inflate to any size; what is read whole here is never large.
            raise ValueError(f"{n_bytes} bytes where flags, sizes or a name should be")
        content = self.take(n_bytes)
        if start - before == 4:
            self.take(4 - n_bytes)
        else:
            self.take(-n_bytes % 8)
        return content


class _Inflated:
    """The content of a compressed element, read from its start."""

    def __init__(self, file: IO[bytes], packed: range) -> None:
        file.seek(packed.start)
        self._file = file
        self._n_left = len(packed)
        self._zlib = zlib.decompressobj()

    def read(self, n_bytes: int) -> bytes:
        content = bytearray()
        while len(content) < n_bytes and not self._zlib.eof:
            packed = self._zlib.unconsumed_tail or self._file.read(min(PIECE, self._n_left))
            if not self._zlib.unconsumed_tail:
                self._n_left -= len(packed)
            inflated = self._zlib.decompress(packed, n_bytes - len(content))
            if not packed and not inflated:
                raise EOFError("compressed bytes are missing")
            content += inflated
        return bytes(content)

    def require_end(self) -> None:
        """Read to the end, where zlib compares its checksum."""
        while self.read(PIECE):
            pass


def _pieces(n_bytes: int) -> Iterator[int]:
    for first in range(0, n_bytes, PIECE):
        yield min(PIECE, n_bytes - first)
