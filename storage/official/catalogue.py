"""What is known of official data files before any is opened: addresses, arrays, axes, splits.

The table is `catalogue.json`. Shapes, axes and splits follow the code released with the FNO,
Geo-FNO and LSM papers. Addresses could only be checked against the places that publish them, not
tried: the first download of a file without a known sha256 fixes it in the store. `confirm` in the
addresses of Google Drive skips the page that warns of large files; a file that was fetched too
often today still answers with a page, which the download recognises.

The classes check what they are made of: a wrong entry of the catalogue, or of the manifest of an
export, is refused with its place.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import ConfigDict, PlainValidator, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass


def _as_range(bounds: Any) -> range:
    """Return a run of samples; files write its first sample and the one after its last."""
    try:
        return bounds if isinstance(bounds, range) else range(*bounds)
    except TypeError as error:
        raise ValueError(f"{bounds!r} is no first sample and one after the last") from error


Values: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Split: TypeAlias = Mapping[str, Annotated[range, PlainValidator(_as_range)]]
SplitRule = Literal["release", "paper"]
"""The indices of the released code, or the counts of the paper's table where they differ."""

NOTHING_ELSE = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, config=NOTHING_ELSE)
class Archive:
    """A zip archive that holds published files, found in it by their own names."""

    name: str
    urls: tuple[str, ...]
    sha256: str | None = None
    n_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, config=NOTHING_ELSE)
class PublishedFile:
    """One official file; `path` is where the released code looks for it in its data folder.

    `n_bytes` is for the check of the disk and for progress; whether a file is right is decided by
    its sha256.
    """

    path: str
    urls: tuple[str, ...]
    archive: Archive | None = None
    sha256: str | None = None
    n_bytes: int | None = None

    @property
    def name(self) -> str:
        """Return the name without folders."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, kw_only=True, config=NOTHING_ELSE)
class PublishedArray:
    """One array of the files: its name in a .mat file, its axes in the file's order, its dtype.

    Several files follow each other along the sample axis.
    """

    files: tuple[str, ...]
    axes: tuple[str, ...]
    variable: str | None = None
    dtype: str = "float64"


@dataclass(frozen=True, kw_only=True, config=NOTHING_ELSE)
class Window:
    """A run of entries of an axis of a file that becomes an axis of its own."""

    dim: str
    axis: str
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, config=NOTHING_ELSE)
class PublishedVariable:
    """A variable of our dataset, cut out of a published array.

    `pick` takes one entry of an axis, `window` a run of them. A variable with `mask` is multiplied
    by the variable of that name.
    """

    name: str
    dims: tuple[str, ...]
    array: PublishedArray
    role: Literal["input", "target", "parameter"]
    unit: str = "1"
    description: str
    pick: Mapping[str, int] = field(default_factory=dict)
    window: Window | None = None
    mask: str | None = None

    def place(self) -> dict[str, int | slice]:
        """Return where in its array the variable is cut out, or put in, by axis."""
        if self.window is None:
            return dict(self.pick)
        return {**self.pick, self.window.axis: slice(self.window.start, self.window.stop)}

    def along(self, dim: str) -> tuple[str, slice]:
        """Return the axis of the array that an axis of the variable is taken from, and its run."""
        if self.window is None or self.window.dim != dim:
            return dim, slice(None)
        return self.window.axis, slice(self.window.start, self.window.stop)

    def axes(self) -> tuple[str, ...]:
        """Return what the axes of its samples are called in the array, the sample axis first."""
        return ("sample", *(self.along(dim)[0] for dim in self.dims))


@dataclass(frozen=True, kw_only=True, config=NOTHING_ELSE)
class Coordinates:
    """The values along an axis, which follow from its size, or were written down."""

    rule: Literal["periodic nodes", "cell centres", "nodes", "angles", "steps", "given"]
    first: float = 0.0
    step: float = 1.0
    values: tuple[float, ...] = ()

    def __call__(self, size: int) -> Values:
        """Return the values along an axis of this size."""
        index = np.arange(size, dtype=np.float64)
        match self.rule:
            case "periodic nodes":  # the right end is the left one and is left out
                return index / size
            case "cell centres":
                return (index + 0.5) / size
            case "nodes":  # both ends are included
                return np.linspace(0.0, 1.0, size)
            case "angles":  # the last one is the first
                return np.linspace(0.0, 2 * np.pi, size)
            case "steps":  # also counting numbers, where positions are not known or differ
                return self.first + self.step * index
        if size != len(self.values):
            raise ValueError(f"{len(self.values)} coordinates for an axis of {size} points")
        return np.array(self.values)


@dataclass(frozen=True, kw_only=True, config=NOTHING_ELSE)
class PublishedBenchmark:
    """All that is known of the official data of one benchmark.

    `axes` gives the sizes of the files' axes other than the sample axis, `coordinates` the values
    along them. Samples are counted through all files that follow each other. `layout` says which
    parts stand in which of those files, in which order, so that the released code finds them in an
    export.
    """

    name: str
    title: str
    note: str = ""
    """What is odd about the files, for whoever reads the catalogue."""
    space: tuple[str, ...]
    positions: str
    folder: str
    files: tuple[PublishedFile, ...]
    n_samples: tuple[int, ...]
    axes: Mapping[str, int]
    coordinates: Mapping[str, Coordinates]
    variables: tuple[PublishedVariable, ...]
    splits: Mapping[SplitRule, Split]
    layout: tuple[tuple[str, ...], ...] = (("train", "validation", "test"),)
    strided: tuple[str, ...] = ()
    stride: int = 1
    shared: Mapping[str, str] = field(default_factory=dict)
    """Small arrays of a .mat file that repeat the coordinates along an axis."""
    kind: Literal["published", "exported"] = "published"
    licence: str = "no licence of the data was published; the code beside it is under MIT"

    def shape(self, array: PublishedArray, file: str) -> tuple[int, ...]:
        """Return the shape that an array has in one of its files."""
        n_samples = self.n_samples[array.files.index(file)]
        return tuple(n_samples if axis == "sample" else self.axes[axis] for axis in array.axes)

    def variable_shape(self, variable: PublishedVariable, stride: int) -> tuple[int, ...]:
        """Return the shape of a sample of a variable, after the stride."""
        return tuple(self.size(variable, dim, stride) for dim in variable.dims)

    def size(self, variable: PublishedVariable, dim: str, stride: int) -> int:
        """Return the length of an axis of a variable, after the stride."""
        axis, run = variable.along(dim)
        return len(range(self.axes[axis])[run][:: self.step(dim, stride)])

    def step(self, dim: str, stride: int) -> int:
        """Return the step along an axis: the stride on the axes that have one."""
        return stride if dim in self.strided else 1

    def require_stride(self, stride: int) -> None:
        """Raise ValueError unless a stride makes a grid; along a periodic axis it has to divide."""
        sizes = [self.axes[axis] for axis in self.strided]
        if stride == 1:
            return
        if not sizes:
            raise ValueError(f"{self.name} lies on scattered points and takes no stride")
        if not 1 <= stride < min(sizes):
            raise ValueError(f"stride must be from 1 to {min(sizes) - 1}, got {stride}")
        if self.positions == "periodic nodes" and any(size % stride for size in sizes):
            raise ValueError(
                f"stride must divide {sizes[0]}, since {self.name} is periodic; got {stride}"
            )

    def stride_to(self, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
        """Return the stride that gives variables these shapes, or None if there is none."""
        known = {variable.name: variable for variable in self.variables}
        if not shapes.keys() <= known.keys():
            return None
        for stride in range(1, min((self.axes[axis] for axis in self.strided), default=2)):
            with suppress(ValueError):
                self.require_stride(stride)
                if all(self.variable_shape(known[n], stride) == shapes[n] for n in shapes):
                    return stride
        return None

    def coordinates_of(self, dim: str, stride: int) -> Values | None:
        """Return the values along an axis of a variable, or None if there are none."""
        found = (each.along(dim) for each in self.variables if dim in each.dims)
        axis, run = next(found, (dim, slice(None)))
        if axis not in self.coordinates:
            return None
        return self.coordinates[axis](self.axes[axis])[run][:: self.step(dim, stride)]


@cache
def published_benchmarks() -> dict[str, PublishedBenchmark]:
    """Return what is published of every benchmark, by name; the table is read once."""
    text = (files("storage.official") / "catalogue.json").read_text(encoding="utf-8")
    return checked_catalogue(json.loads(text))


def checked_catalogue(table: Mapping[str, Mapping[str, Any]]) -> dict[str, PublishedBenchmark]:
    """Return the benchmarks of a table; ValueError says the place of a wrong entry."""
    named = {name: {"name": name, **entry} for name, entry in table.items()}
    try:
        return TypeAdapter(dict[str, PublishedBenchmark]).validate_python(named)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"the catalogue of official files is wrong at {place}: {first['msg']}, got "
            f"{first['input']!r}"
        ) from error
