"""An array in a file, before it is read, with what the file says of it."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from storage.official.files import FileArray

Place = Literal["", "point", "cell"]
LOCAL_HEADER = 30


@dataclass(frozen=True)
class FieldArray(FileArray):
    """An array of a file; an index reads that part of it."""

    unit: str = ""
    """As the file says; empty if it says nothing."""
    place: Place = ""
    """On a mesh: whether values stand at points or in cells."""
    axes: tuple[str, ...] = ()
    """What the file says they are; empty if it says nothing."""


def mapped_member(
    path: Path, name: str, dtype: np.dtype[Any], size: int, skipped: int = 0
) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the values of a zip's member that is not compressed, where they lie in the file."""
    with zipfile.ZipFile(path) as file:
        member = file.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"its part {name} is compressed, expected plain bytes")
    with path.open("rb") as opened:
        opened.seek(member.header_offset)
        header = opened.read(LOCAL_HEADER)
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    start = member.header_offset + LOCAL_HEADER + lengths + skipped
    n_bytes = size * dtype.itemsize
    if start + n_bytes > path.stat().st_size or skipped + n_bytes > member.file_size:
        raise ValueError(f"its part {name} ends before its {n_bytes} bytes")
    if not size:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r", offset=start, shape=(size,))
