"""Plain tensors in files of `torch.save`, read without torch and without running any code.

Such a file is a zip of a pickle, which names tensors and where their values lie, and one member of
raw bytes for each storage. A pickle can call any function; here it may name the few things that a
tensor is made of, and whatever else it asks for is refused.
"""

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from storage.fields.array import FieldArray, mapped_member

TYPES = {
    **{"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8"},
    **{"IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1", "ByteStorage": "<u1"},
    **{"BoolStorage": "?"},
}
LARGEST_PICKLE = 2**24
"""Of the part that names tensors: it has some hundred bytes for each."""
DEEPEST = 16


@dataclass(frozen=True)
class _Storage:
    dtype: np.dtype[Any]
    key: str
    size: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Plain(pickle._Unpickler):
    """Reads what a tensor is made of and nothing else. In Python: the other one trusts sizes."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the few things that may be named."""
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda data, *_: data
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in TYPES:
            return np.dtype(TYPES[name])
        raise ValueError(f"it asks for {module}.{name}, expected tensors alone")

    def persistent_load(self, pid: Any) -> Any:
        """Return where the values of a tensor lie."""
        kind, dtype, key, _device, size = pid
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise ValueError(f"it refers to {kind!r}, expected the storage of a tensor")
        return _Storage(dtype, str(key), int(size))


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise ValueError("a tensor has no storage")
    return _Tensor(storage, int(offset), tuple(map(int, size)), tuple(map(int, stride)))


def torch_arrays(path: Path) -> dict[str, Callable[[], FieldArray]]:
    """Return the tensors of a file by their names, those inside others joined by a slash.

    A file that is a single tensor has it under its own name.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError("it is of torch before 1.6, or none; load it and save it again")
    with zipfile.ZipFile(path) as file:
        pickled = [each for each in file.infolist() if each.filename.endswith("data.pkl")]
        if len(pickled) != 1 or pickled[0].file_size > LARGEST_PICKLE:
            raise ValueError("it has no data.pkl that names its tensors")
        with file.open(pickled[0]) as member:
            content = _Plain(BytesIO(member.read(LARGEST_PICKLE))).load()
        folder = pickled[0].filename.removesuffix("data.pkl")
    found = _tensors(content, path.stem)
    return {
        name: lambda tensor=tensor: _array(path, folder, tensor)  # type: ignore[misc]
        for name, tensor in found.items()
    }


def _tensors(content: Any, name: str, depth: int = 0) -> dict[str, _Tensor]:
    if isinstance(content, _Tensor):
        return {name: content}
    inside: dict[Any, Any] = {}
    if isinstance(content, dict):
        inside = content
    elif isinstance(content, list | tuple):
        inside = dict(enumerate(content))
    if depth > DEEPEST:
        raise ValueError("its content is nested too deeply")
    found: dict[str, _Tensor] = {}
    for key, value in inside.items():
        found |= _tensors(value, f"{name}/{key}" if depth else str(key), depth + 1)
    return found


def _array(path: Path, folder: str, tensor: _Tensor) -> FieldArray:
    storage = tensor.storage
    itemsize = storage.dtype.itemsize
    last = tensor.offset + sum(
        (n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True)
    )
    is_inside = tensor.offset >= 0 and last < storage.size and min(tensor.strides, default=0) >= 0
    if prod(tensor.shape) and not is_inside:
        raise ValueError("a tensor reaches beyond its storage")

    def read(index: Any) -> np.ndarray[Any, np.dtype[Any]]:
        values = mapped_member(path, f"{folder}data/{storage.key}", storage.dtype, storage.size)
        strides = tuple(itemsize * stride for stride in tensor.strides)
        view = np.lib.stride_tricks.as_strided(
            values[tensor.offset :], tensor.shape, strides, writeable=False
        )
        return np.array(view[index])

    read((slice(0, 0),) * len(tensor.shape))  # the member is there, whole
    return FieldArray(tensor.shape, storage.dtype, read)
