"""Several files as one list of samples: which array lies where, and one variable of one sample."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from flows.errors import BadInput
from flows.steps.data.declaration import COMPONENT, SAMPLE, TIME, Declaration, Declared, Part
from storage.fields.array import FieldArray
from storage.fields.files import FORMATS, format_of, open_arrays
from storage.fields.meshes import companions

Array = np.ndarray[Any, np.dtype[Any]]

OPEN_FILES = 8


def files_of(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files that are meant: a folder means those in it that can be read."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise BadInput(f"there is no file or folder {path}")
        if path.is_dir() and path.suffix != ".zarr":
            inside = _files_in(path)
            if not inside:
                raise BadInput(f"{path} holds no file of a kind that is read: {', '.join(FORMATS)}")
            found += inside
        else:
            format_of(path)
            found.append(path)
    return tuple(dict.fromkeys(found))


def _files_in(folder: Path) -> list[Path]:
    """Return what can be read of a folder, without what belongs to another file in it."""
    found = sorted(
        each
        for each in folder.rglob("*")
        if any(each.name.lower().endswith(end) for end in FORMATS)
        and not any(part.startswith(".") for part in each.relative_to(folder).parts)
    )
    # Beside controlDict, which every case has, a .foam file says nothing new.
    cases = {each.parent.parent for each in found if each.name == "controlDict"}
    found = [each for each in found if each.suffix != ".foam" or each.parent not in cases]
    owned = {each for path in found for each in companions(path)}
    return [each for each in found if each not in owned]


def digest_of_file(path: Path) -> str:
    """Return the hash of a file with those that belong to it, or of all files of a folder."""
    if path.is_file() and (others := companions(path)):
        hashed = hashlib.sha256()
        for each in (path, *others):
            with each.open("rb") as content:
                hashed.update(each.name.encode())
                hashed.update(hashlib.file_digest(content, "sha256").digest())
        return hashed.hexdigest()
    if path.is_file():
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    hashed = hashlib.sha256()
    for each in sorted(path.rglob("*")):
        if each.is_file():
            hashed.update(str(each.relative_to(path)).encode())
            hashed.update(digest_of_file(each).encode())
    return hashed.hexdigest()


@lru_cache(OPEN_FILES)
def arrays_in(path: Path) -> dict[str, FieldArray]:
    """Return the arrays of a file; a few files stay open, which matters for those parsed whole."""
    return open_arrays(path)


@dataclass(frozen=True)
class Place:
    """Where a sample lies: the number of its file among those that have samples, and its row."""

    file: int
    row: int = 0


@dataclass(frozen=True)
class FileSamples:
    """The samples that some files hold, as a declaration says."""

    declaration: Declaration
    files: tuple[Path, ...]
    without: tuple[Part, ...] = ()
    """Parts of the problem that the files need not have."""

    @property
    def variables(self) -> tuple[Declared, ...]:
        """Return the variables that are read."""
        return tuple(v for v in self.declaration.variables if v.role not in self.without)

    @cached_property
    def places(self) -> list[Place]:
        """Return where the samples are, in the order of the files; BadInput if numbers differ."""
        if self.declaration.each_file_is_a_sample:
            return [Place(number) for number in range(len(self.files))]
        counts: dict[tuple[int, ...], str] = {}
        for variable in self.variables:
            if SAMPLE in variable.whole_axes:
                for name in variable.arrays:
                    rows = tuple(self._rows(variable, path, name) for path in self._having(name))
                    counts[rows] = name
        if not counts:
            raise BadInput(
                "no variable has an axis of samples; say so by --axes NAME=sample,..., or that "
                "each file is a sample (--each)"
            )
        if len(counts) > 1:
            (first, one), (second, other) = list(counts.items())[:2]
            raise BadInput(
                f"{one} has {_summed(first)} samples and {other} has {_summed(second)}; both "
                "need the same in the same order of files"
            )
        (rows,) = counts
        return [Place(file, row) for file, n_rows in enumerate(rows) for row in range(n_rows)]

    def _rows(self, variable: Declared, path: Path, name: str) -> int:
        array = self._array(path, name)
        if len(array.shape) != len(variable.axes):
            raise BadInput(
                f"{name} in {path.name} has shape {array.shape}, but its axes are said to be "
                f"{', '.join(variable.axes)}"
            )
        if SAMPLE not in variable.axes:
            raise BadInput(f"the axis sample of {name} is stored as one with another")
        return array.shape[variable.axes.index(SAMPLE)]

    def _having(self, name: str) -> list[Path]:
        found = [path for path in self.files if name in arrays_in(path)]
        if not found:
            some = sorted({each for path in self.files[:OPEN_FILES] for each in arrays_in(path)})
            raise BadInput(f"no file has {name}; they hold {', '.join(some)}")
        return found

    def _array(self, path: Path, name: str) -> FieldArray:
        arrays = arrays_in(path)
        if name not in arrays:
            raise BadInput(
                f"{path} has no {name}, it holds {', '.join(arrays)}; add or leave it out"
            )
        return arrays[name]

    def path_of(self, variable: Declared, name: str, place: Place) -> Path:
        """Return the file in which a variable of a sample lies."""
        if self.declaration.each_file_is_a_sample:
            return self.files[place.file]
        having = self._having(name)
        return having[place.file] if SAMPLE in variable.whole_axes else having[0]

    def shape_in_file(self, variable: Declared, place: Place) -> dict[str, int]:
        """Return the sizes of a variable's axes, without its samples; nothing is read."""
        name = variable.arrays[0]
        path = self.path_of(variable, name, place)
        shape = self._array(path, name).shape
        if len(shape) != len(variable.axes):
            raise BadInput(
                f"{name} in {path} has shape {shape}, expected axes {', '.join(variable.axes)}"
            )
        sizes = {axis: n for axis, n in zip(variable.axes, shape, strict=True) if axis != SAMPLE}
        if len(variable.arrays) > 1:
            sizes[COMPONENT] = len(variable.arrays)
        return sizes

    def read(self, variable: Declared, place: Place, sizes: dict[str, int]) -> Array:
        """Return a variable of one sample, `(*space, *others)`; BadInput says what is wrong.

        `sizes` are those of all axes of this sample, by which axes that a file stores as one are
        told apart.
        """
        parts = [self._read_one(variable, name, place, sizes) for name in variable.arrays]
        return parts[0] if len(parts) == 1 else np.stack(parts, axis=-1)

    def _read_one(
        self, variable: Declared, name: str, place: Place, sizes: dict[str, int]
    ) -> Array:
        path = self.path_of(variable, name, place)
        array = self._array(path, name)
        index = tuple(place.row if axis == SAMPLE else slice(None) for axis in variable.axes)
        values = np.asarray(array[index] if index else array[...])
        where = f"{name} of sample {place.row} in {path}"
        if self.declaration.each_file_is_a_sample or SAMPLE not in variable.axes:
            where = f"{name} in {path}"
        axes = [axis for axis in variable.axes if axis != SAMPLE]
        if values.ndim != len(axes):
            raise BadInput(f"{where} has shape {values.shape}, expected axes {', '.join(axes)}")
        whole = [part for axis in axes for part in axis.split(".")]
        shape = _apart(axes, values.shape, sizes, where)
        values = values.reshape(shape)
        if TIME in whole:
            window = [slice(None)] * len(whole)
            window[whole.index(TIME)] = variable.window
            values = values[tuple(window)]
        space = self.declaration.space
        order = [*(a for a in space if a in whole), *(a for a in whole if a not in space)]
        values = values.transpose([whole.index(axis) for axis in order])
        n_wrong = int((~np.isfinite(values)).sum())
        if n_wrong:
            raise BadInput(
                f"{where} has {n_wrong} values of NaN or infinity, expected numbers; mend the "
                "file or leave it out"
            )
        return (values / variable.factor if variable.factor != 1 else values).astype(np.float32)

    def unit_of(self, variable: Declared) -> str:
        """Return the unit that the files say, or else the declaration; BadInput if two disagree."""
        said: dict[str, Path] = {}
        for name in variable.arrays:
            for path in self._having(name):
                if unit := arrays_in(path)[name].unit:
                    said.setdefault(unit, path)
        if len(said) > 1:
            (one, here), (other, there) = list(said.items())[:2]
            raise BadInput(
                f"{variable.name} is in {one} in {here.name} and in {other} in {there.name}; "
                "bring all files to one unit"
            )
        found = next(iter(said), "1")
        if variable.unit not in ("1", found) and said:
            raise BadInput(
                f"{variable.name} is declared in {variable.unit}, but {said[found].name} has it "
                f"in {found}"
            )
        return found if variable.unit == "1" else variable.unit


def _apart(
    axes: Sequence[str], shape: Sequence[int], sizes: dict[str, int], where: str
) -> list[int]:
    """Return the shape with those axes apart that a file stores as one."""
    whole: list[int] = []
    for axis, size in zip(axes, shape, strict=True):
        parts = axis.split(".")
        known = [sizes.get(part) if len(parts) > 1 else size for part in parts]
        if known.count(None) == 1:
            others = prod(n for n in known if n is not None)
            known[known.index(None)] = size // max(1, others)
        if None in known or prod(n for n in known if n is not None) != size:
            raise BadInput(
                f"{where} has {size} values along {axis}, which {known} do not make; the sizes "
                "of its parts are not known from other variables"
            )
        whole += [n for n in known if n is not None]
    return whole


def _summed(rows: tuple[int, ...]) -> str:
    return str(rows[0]) if len(rows) == 1 else " + ".join(map(str, rows))
