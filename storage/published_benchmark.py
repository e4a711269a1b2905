"""What is known of official data files before any is opened: addresses, arrays, axes, splits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

Coordinates: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Split: TypeAlias = Mapping[str, range]
SplitRule = Literal["release", "paper"]
"""The indices of the released code, or the counts of the paper's table where they differ."""


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A zip archive that holds published files, found in it by their own names."""

    name: str
    urls: tuple[str, ...]
    sha256: str | None = None
    n_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class PublishedArray:
    """One array of the files: its name in a .mat file, its axes in the file's order, its dtype.

    Several files follow each other along the sample axis.
    """

    files: tuple[str, ...]
    axes: tuple[str, ...]
    variable: str | None = None
    dtype: str = "float64"


@dataclass(frozen=True, kw_only=True)
class Window:
    """A run of entries of an axis of a file that becomes an axis of its own."""

    dim: str
    axis: str
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class PublishedBenchmark:
    """All that is known of the official data of one benchmark.

    `axes` gives the sizes of the files' axes other than the sample axis, `coordinates` the values
    along them as functions of the size. Samples are counted through all files that follow each
    other. `layout` says which parts stand in which of those files, in which order, so that the
    released code finds them in an export.
    """

    name: str
    title: str
    space: tuple[str, ...]
    positions: str
    folder: str
    files: tuple[PublishedFile, ...]
    n_samples: tuple[int, ...]
    axes: Mapping[str, int]
    coordinates: Mapping[str, Callable[[int], Coordinates]]
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
        return len(range(self._whole_size(variable, dim))[:: self.step(dim, stride)])

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

    def coordinates_of(self, dim: str, stride: int) -> Coordinates | None:
        """Return the values along an axis of a variable, or None if there are none."""
        for variable in self.variables:
            window = variable.window
            if window is not None and window.dim == dim and window.axis in self.coordinates:
                values = self.coordinates[window.axis](self.axes[window.axis])
                return values[window.start : window.stop]
        if dim not in self.coordinates:
            return None
        return self.coordinates[dim](self.axes[dim])[:: self.step(dim, stride)]

    def _whole_size(self, variable: PublishedVariable, dim: str) -> int:
        window = variable.window
        if window is not None and window.dim == dim:
            return window.stop - window.start
        return self.axes[dim]


def periodic_nodes(size: int) -> Coordinates:
    """Return i / n: the right end is the left one and is left out."""
    return np.arange(size) / size


def cell_centres(size: int) -> Coordinates:
    """Return (i + 1/2) / n."""
    return (np.arange(size) + 0.5) / size


def nodes(size: int) -> Coordinates:
    """Return equal steps from 0 to 1, both ends included."""
    return np.linspace(0.0, 1.0, size)


def numbers(size: int, *, first: int = 0) -> Coordinates:
    """Return counting numbers, where positions differ from sample to sample or are not known."""
    return np.arange(first, first + size, dtype=np.float64)


def angles(size: int) -> Coordinates:
    """Return equal steps around the circle; the last angle is the first."""
    return np.linspace(0.0, 2 * np.pi, size)


def downwards(size: int, *, first: float, step: float) -> Coordinates:
    """Return equal steps to smaller values."""
    return first - step * np.arange(size, dtype=np.float64)
