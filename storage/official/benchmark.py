"""What is known of official data files before any is opened: addresses, arrays, axes, splits.

The classes check what they are made of: a wrong entry of the catalogue, or of the manifest of an
export, is refused with its place.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import ConfigDict, PlainValidator
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

    def axes(self) -> tuple[str, ...]:
        """Return what the axes of its samples are called in the array, the sample axis first."""
        window = self.window
        names = (window.axis if window and window.dim == dim else dim for dim in self.dims)
        return ("sample", *names)


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
        window, whole = variable.window, self.axes.get(dim, 0)
        if window is not None and window.dim == dim:
            whole = window.stop - window.start
        return len(range(whole)[:: self.step(dim, stride)])

    def step(self, dim: str, stride: int) -> int:
        """Return the step along an axis: the stride on the axes that have one."""
        return stride if dim in self.strided else 1

    def stride_to(self, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
        """Return the stride that gives variables these shapes, or None if there is none.

        A stride along a periodic axis has to divide it.
        """
        known = {variable.name: variable for variable in self.variables}
        if not shapes.keys() <= known.keys():
            return None
        sizes = [self.axes[axis] for axis in self.strided]
        for stride in range(1, min(sizes, default=2)):
            if self.positions == "periodic nodes" and any(size % stride for size in sizes):
                continue
            found = {name: self.variable_shape(known[name], stride) for name in shapes}
            if found == dict(shapes):
                return stride
        return None

    def coordinates_of(self, dim: str, stride: int) -> Values | None:
        """Return the values along an axis of a variable, or None if there are none."""
        for variable in self.variables:
            window = variable.window
            if window is not None and window.dim == dim and window.axis in self.coordinates:
                values = self.coordinates[window.axis](self.axes[window.axis])
                return values[window.start : window.stop]
        if dim not in self.coordinates:
            return None
        return self.coordinates[dim](self.axes[dim])[:: self.step(dim, stride)]
