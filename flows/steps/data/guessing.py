"""What files hold, guessed from the names and shapes of their arrays.

declaration = guessed("blocks", files, Wishes(targets=("u",)))

What cannot be guessed is asked for in a sentence that lists the arrays.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, log10, prod
from pathlib import Path

import numpy as np

from flows.errors import BadInput
from flows.steps.data.declaration import (
    COMPONENT,
    GRID_AXES,
    POINT,
    SAMPLE,
    TIME,
    Declaration,
    Declared,
    Geometry,
    Part,
    Splits,
)
from flows.steps.data.file_arrays import arrays_in
from flows.steps.data.ingestion import split_of_name
from storage.fields.array import FieldArray, Place
from storage.fields.files import format_of

Arrays = Mapping[str, FieldArray]

TARGETS = ("y", "u", "sol", "solution", "output", "outputs", "target", "targets")
INPUTS = ("x", "a", "coeff", "nu", "input", "inputs", "params", "parameters", "mu")
WHERE = ("positions", "points", "nodes", "coordinates", "coords", "pos", "xyz", "xy")
FEW = 64
"""A sample has no more parameters than that; what has more is a field."""
COORDINATES = 3
NO_VOLUME = "none"
SIZED_BY = 32
"""So many samples of a file tell how large a target is."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is said by flags and need not be guessed."""

    inputs: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    positions: tuple[str, ...] = ()
    volume: str = ""
    at: Place = ""
    """Of a mesh: where values are to stand, if not where the targets do."""
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    frames: str = ""
    """Of targets over time: which are predicted."""
    geometry: Geometry | None = None
    each: bool = False
    periodic: bool = False
    rollout: bool | None = None
    duplicates: bool = False
    title: str = ""
    splits: Splits | None = None


def guessed(
    name: str,
    files: Sequence[Path],
    wishes: Wishes,
    tell: Callable[[str], None] = lambda said: None,
) -> Declaration:
    """Return the declaration that files and wishes suggest; BadInput if something is open.

    What becomes of values on a mesh is told, a sentence each.
    """
    arrays = all_arrays(files)
    if all(format_of(path).is_mesh for path in files):
        wishes = on_mesh(arrays, wishes, tell)
    each = wishes.each or all(format_of(path).is_sample for path in files)
    made = _Guess(arrays, wishes, each)
    variables = _of_one_size(_layout(arrays, wishes) or made.variables(), arrays)
    positions = [v for v in variables if v.role == "position"]
    geometry: Geometry = "grid"
    if positions:
        geometry = "points" if POINT in positions[0].whole_axes else "mesh"
    has_time = any(TIME in v.whole_axes and v.role == "target" for v in variables)
    rollout = made.is_trajectory(variables) if wishes.rollout is None else wishes.rollout
    try:
        return Declaration(
            name=name,
            title=wishes.title,
            geometry=wishes.geometry or geometry,
            periodic=wishes.periodic,
            rollout=rollout and has_time,
            each_file_is_a_sample=each,
            duplicates=wishes.duplicates,
            splits=wishes.splits or _splits(files),
            variables=tuple(variables),
        )
    except ValueError as error:
        raise BadInput(f"{error}; {listed(arrays)}") from error


def all_arrays(files: Sequence[Path]) -> dict[str, FieldArray]:
    """Return the arrays of all files by name, each as the first file has it."""
    found: dict[str, FieldArray] = {}
    for path in files[:100]:
        for name, array in arrays_in(path).items():
            found.setdefault(name, array)
    if not found:
        raise BadInput(f"{files[0]} holds no array of numbers")
    return found


def listed(arrays: Arrays) -> str:
    """Return in words which arrays there are, and of a mesh where they stand."""
    own = [(n, a) for n, a in arrays.items() if not (a.place and ("@" in n or n in GRID_AXES))]
    where = {"point": " at points", "cell": " in cells", "": ""}
    shown = [f"{name} {_times(a.shape)}{where[a.place]}" for name, a in own[:20]]
    return f"the files hold {', '.join(shown)}"


def on_mesh(arrays: Arrays, wishes: Wishes, tell: Callable[[str], None]) -> Wishes:
    """Bring all that is wished to where the targets stand: to points, or to centroids of cells.

    Coordinates that are equal at all points are left out; points count by their share of volume.
    """
    fields = [n for n, a in arrays.items() if a.place and "@" not in n and n not in GRID_AXES]
    targets = wishes.targets or tuple(n for n in TARGETS if n in fields)[:1]
    if not targets and len(fields) == 1:
        targets = (fields[0],)
    if missing := [n for n in (*targets, *wishes.inputs) if n not in arrays]:
        raise BadInput(f"no file has {missing[0]}; {listed(arrays)}")
    if not targets:
        raise BadInput(f"say what is to be predicted by --targets; {listed(arrays)}")
    places = {arrays[n].place for n in targets} - {""}
    at: Place = wishes.at or ("cell" if places == {"cell"} else "point")
    tell(f"{', '.join(targets)}: values stand {'in cells' if at == 'cell' else 'at points'}")
    if at == "cell":
        tell("the points of a sample are the centroids of its cells")

    def moved(name: str) -> str:
        if arrays[name].place in ("", at) or "@" in name:
            return name
        here, there = ("cells", "points") if at == "point" else ("points", "cells")
        tell(f"{name} stands {_where(here)} and is averaged to the {there}")
        return f"{name}@{there}"

    suffix = "@cells" if at == "cell" else ""
    axes = [f"{axis}{suffix}" for axis in GRID_AXES]
    flat = [name for name in axes if np.ptp(arrays[name][...]) == 0]
    if flat and len(flat) < len(axes):
        tell(f"{', '.join(flat)} is the same everywhere and left out")
    positions = wishes.positions or tuple(n for n in axes if n not in flat) or tuple(axes)
    volume = f"volume@{at}s" if not wishes.volume else wishes.volume
    if volume != NO_VOLUME:
        tell("errors count points by their share of the volume (--volume none: all alike)")
    return replace(
        wishes,
        targets=tuple(map(moved, targets)),
        inputs=tuple(map(moved, wishes.inputs)),
        positions=positions,
        volume="" if volume == NO_VOLUME else volume,
    )


def _where(place: str) -> str:
    return "in cells" if place == "cells" else "at points"


def _times(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "1"


def _splits(files: Sequence[Path]) -> Splits:
    parts = {split_of_name(path) for path in files}
    return Splits(by="file") if {"train", "test"} <= parts else Splits()


class _Guess:
    def __init__(self, arrays: Arrays, wishes: Wishes, each: bool) -> None:
        self.arrays, self.wishes, self.each = arrays, wishes, each
        self.n_samples = None if each else self._sample_length()

    def _sample_length(self) -> int:
        """Return the length that most arrays have along some axis, along the first if two do."""
        for axes in self.wishes.axes.values():
            if SAMPLE in axes:
                name = next(n for n, own in self.wishes.axes.items() if own == axes)
                if name in self.arrays and len(self.arrays[name].shape) == len(axes):
                    return self.arrays[name].shape[axes.index(SAMPLE)]
        anywhere, first = Counter[int](), Counter[int]()
        for array in self.arrays.values():
            anywhere.update(set(array.shape))
            first.update(array.shape[:1])
        if not anywhere:
            raise BadInput(f"no array has axes; {listed(self.arrays)}")
        return max(anywhere, key=lambda n: (n > 1, anywhere[n], first[n], n))

    def variables(self) -> list[Declared]:
        targets = self._targets()
        positions = self._positions(targets)
        inputs = self._inputs((*targets, *positions))
        fields = [self._rest(name) for name in (*positions, *targets)]
        n_points = 0
        if positions:
            n_points = self._n_points(positions, targets)
        made: list[Declared] = []
        if positions:
            made.append(self._declared("position", "positions", positions, n_points, fields))
        made += [self._declared("input", _short(n), (n,), n_points, fields) for n in inputs]
        made += [self._declared("target", _short(n), (n,), n_points, fields) for n in targets]
        if self.wishes.volume:
            volume = (self.wishes.volume,)
            made.append(self._declared("volume", "volume", volume, n_points, fields))
        return made

    def _targets(self) -> tuple[str, ...]:
        if self.wishes.targets:
            return self._known(self.wishes.targets)
        named = self.wishes.inputs + self.wishes.positions
        found = [name for name in TARGETS if name in self.arrays and name not in named]
        if "u" in found and "x" in self.arrays:
            found = ["u"]  # then x and y are where it is
        if not found:
            raise BadInput(f"say what is to be predicted by --targets; {listed(self.arrays)}")
        return (found[0],)

    def _positions(self, targets: Sequence[str]) -> tuple[str, ...]:
        if self.wishes.positions:
            return self._known(self.wishes.positions)
        if self.wishes.geometry == "grid":
            return ()
        taken = (*targets, *self.wishes.inputs)
        rest = self._rest(targets[0])
        like = [
            name
            for name in GRID_AXES
            if name in self.arrays and name not in taken and self._rest(name) == rest[: len(rest)]
        ]
        if len(like) > 1 or (like and self.each):
            return tuple(like)
        return tuple(n for n in WHERE if n in self.arrays and n not in taken)[:1]

    def _inputs(self, taken: Sequence[str]) -> tuple[str, ...]:
        if self.wishes.inputs:
            return self._known(self.wishes.inputs)
        named = [name for name in INPUTS if name in self.arrays and name not in taken]
        others = [
            name
            for name, array in self.arrays.items()
            if name not in taken and self._has_samples(name) and array.dtype.kind == "f"
        ]
        if self.each:
            return ()
        return tuple(name for name in (named or others) if self._has_samples(name))

    def _known(self, names: Sequence[str]) -> tuple[str, ...]:
        for name in names:
            if name not in self.arrays:
                raise BadInput(f"no file has {name}; {listed(self.arrays)}")
        return tuple(names)

    def _has_samples(self, name: str) -> bool:
        return self.each or self.n_samples in self.arrays[name].shape

    def _sample_axis(self, name: str) -> int | None:
        if self.each or not self._has_samples(name):
            return None
        return self.arrays[name].shape.index(self.n_samples)

    def _rest(self, name: str) -> tuple[int, ...]:
        """Return the shape of one sample."""
        axis, shape = self._sample_axis(name), self.arrays[name].shape
        return shape if axis is None else shape[:axis] + shape[axis + 1 :]

    def _n_points(self, positions: Sequence[str], targets: Sequence[str]) -> int:
        """Return the number of points in no order; 0 if positions have several axes of points."""
        rest = self._rest(positions[0])
        sizes = [n for n in rest if n > COORDINATES] or list(rest)
        if len(positions) == 1 and len(rest) > 2:
            return 0
        if len(positions) > 1 and len(rest) > 1:
            return 0
        for size in sizes:
            for target in targets:
                if any(n % size == 0 for n in self._rest(target)):
                    return size
        return sizes[0]

    def _declared(
        self,
        role: Part,
        name: str,
        arrays: Sequence[str],
        n_points: int,
        fields: Sequence[tuple[int, ...]],
    ) -> Declared:
        first = arrays[0]
        own = self.arrays[first].axes or None
        axes = self.wishes.axes.get(first) or own or self._axes(first, role, n_points, fields)
        return Declared(
            name=name,
            role=role,
            arrays=tuple(arrays),
            axes=axes,
            unit=self.wishes.units.get(first, self.wishes.units.get(name, "1")),
            frames=self._frames(role, first, axes),
        )

    def _axes(
        self, name: str, role: Part, n_points: int, fields: Sequence[tuple[int, ...]]
    ) -> tuple[str, ...]:
        """Return the axes of an array: of points, of a grid, or none if it is of parameters."""
        rest = list(self._rest(name))
        if n_points:
            axes = [_point_axis(size, n_points) for size in rest]
            is_number = role == "target" and prod(rest) <= COORDINATES
            has_points = axes.count(POINT) == 1 or "." in "".join(axes)
            if role != "input" and not has_points and not is_number:
                raise BadInput(
                    f"{name} has shape {_times(rest)} a sample, where {n_points} points are; say "
                    f"its axes by --axes {name}=sample,point,..."
                )
            if len(axes) > 1 and TIME not in axes and axes.count(COMPONENT) > 1:
                axes = [
                    TIME if axis == COMPONENT and n > COORDINATES else axis
                    for axis, n in zip(axes, rest, strict=True)
                ]
        else:
            axes = self._grid_axes(rest, role, fields)
        at = self._sample_axis(name)
        if at is not None:
            axes.insert(at, SAMPLE)
        return tuple(axes)

    def _grid_axes(
        self, rest: list[int], role: Part, fields: Sequence[tuple[int, ...]]
    ) -> list[str]:
        """Return the axes of a field on a grid, which inputs and targets share."""
        grid = self._grid(fields)
        if role == "target" and prod(rest) <= COORDINATES and rest != list(grid):
            return [COMPONENT] * len(rest)
        if len(rest) <= 1 and role == "input" and (not rest or tuple(rest) != grid):
            return [COMPONENT] * len(rest)
        for first in range(len(rest) - len(grid) + 1):
            if tuple(rest[first : first + len(grid)]) == grid:
                names = list(GRID_AXES[: len(grid)])
                before = [TIME] * first
                after = [COMPONENT] * (len(rest) - len(grid) - first)
                return [*before, *names, *after]
        return [COMPONENT] * len(rest)

    def _grid(self, fields: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the sizes of space: what the target shares with an input, or all that it has."""
        target = max(reversed(fields), key=prod)  # others may be numbers of a sample
        inputs = [self._rest(name) for name in self._inputs(self._targets())]
        shared = [
            own
            for own in inputs
            if own and any(target[n : n + len(own)] == own for n in range(len(target)))
        ]
        found = max(shared, key=len, default=target)
        if len(found) > len(GRID_AXES) or (len(found) > 1 and found[-1] <= COORDINATES):
            found = found[: min(len(GRID_AXES), len(found) - 1)]
        return found

    def _frames(self, role: Part, name: str, axes: tuple[str, ...]) -> str:
        """Return which frames of a target are predicted: not the first if it is the input."""
        if role != "target" or TIME not in axes:
            return ""
        if self.wishes.frames:
            return self.wishes.frames
        array = self.arrays[name]
        row = tuple(0 if axis == SAMPLE else slice(None) for axis in axes)
        frames = np.moveaxis(array[row], [a for a in axes if a != SAMPLE].index(TIME), 0)
        for other in self._inputs(self._targets()):
            at = self._sample_axis(other)
            if self._rest(other) == frames.shape[1:]:
                given = self.arrays[other][
                    tuple(
                        0 if n == at else slice(None) for n in range(len(self.arrays[other].shape))
                    )
                ]
                if np.allclose(frames[0], given):
                    return "1:"
        return ""

    def is_trajectory(self, variables: Sequence[Declared]) -> bool:
        """Return whether the target goes on from the one input, frame by frame."""
        roles = Counter(v.role for v in variables)
        target = next(v for v in variables if v.role == "target")
        return roles["input"] == roles["target"] == 1 and target.frames == "1:"


def _of_one_size(variables: list[Declared], arrays: Arrays) -> list[Declared]:
    """Return variables whose targets are of about the same size, by powers of ten in their units.

    All targets share one norm: beside a pressure of 1e5 Pa nobody would learn a drag of 0.01.
    """
    targets = [v for v in variables if v.role == "target"]
    if len(targets) < 2:
        return variables
    powers = {v.name: _power(arrays[v.arrays[0]], v.axes) for v in targets}
    if len(set(powers.values())) == 1:
        return variables
    return [replace(v, factor=10.0 ** powers[v.name]) if v in targets else v for v in variables]


def _power(array: FieldArray, axes: Sequence[str]) -> int:
    """Return the power of ten of the root mean square of the first samples."""
    row = tuple(slice(0, SIZED_BY) if axis == SAMPLE else slice(None) for axis in axes)
    values = np.asarray(array[row] if row else array[...], dtype=np.float64)
    size = float(np.sqrt(np.mean(np.square(values[np.isfinite(values)])))) if values.size else 0.0
    return floor(log10(size) + 0.5) if size > 0 and np.isfinite(size) else 0


def _point_axis(size: int, n_points: int) -> str:
    if size == n_points:
        return POINT
    if size % n_points == 0 and size // n_points <= COORDINATES:
        return f"{COMPONENT}.{POINT}"
    return COMPONENT


def _short(name: str) -> str:
    """Return what an array is called: the end of its path, in letters that a file name may have."""
    return name.partition("@")[0].rpartition("/")[2].replace(" ", "_")


def _layout(arrays: Arrays, wishes: Wishes) -> list[Declared] | None:
    """Return the variables of files that PDEBench or The Well wrote; None of others."""
    if wishes.inputs or wishes.targets:
        return None
    if "tensor" in arrays and "nu" in arrays:  # PDEBench, Darcy
        grid = GRID_AXES[: len(arrays["nu"].shape) - 1]
        return [
            Declared(name="nu", role="input", arrays=("nu",), axes=(SAMPLE, *grid)),
            Declared(name="u", role="target", arrays=("tensor",), axes=(SAMPLE, COMPONENT, *grid)),
        ]
    if "tensor" in arrays:  # PDEBench, one variable over time
        axes = (SAMPLE, TIME, *GRID_AXES[: len(arrays["tensor"].shape) - 2])
        return _over_time({"u": ("tensor", axes)})
    if "t-coordinate" in arrays:  # PDEBench, several variables over time
        known = {n: a for n, a in arrays.items() if not n.endswith("-coordinate")}
        return _over_time(
            {
                n: (n, (SAMPLE, TIME, *GRID_AXES[: len(a.shape) - 2]))
                for n, a in known.items()
                if len(a.shape) > 2
            }
        )
    wells = {n: a for n, a in arrays.items() if n.startswith(("t0_fields/", "t1_fields/"))}
    if wells:
        return _over_time({_short(n): (n, _well_axes(n, a)) for n, a in wells.items()})
    return None


def _well_axes(name: str, array: FieldArray) -> tuple[str, ...]:
    """Return the axes of a field of The Well: sample, time, space, and components of vectors."""
    n_after = int(name.startswith("t1_fields/"))
    n_space = len(array.shape) - 2 - n_after
    return (SAMPLE, TIME, *GRID_AXES[:n_space], *[COMPONENT] * n_after)


def _over_time(found: Mapping[str, tuple[str, tuple[str, ...]]]) -> list[Declared]:
    """Return the first frame of each as an input and the others as a target."""
    made = []
    for role, frames, ending in (("input", "0:1", "_first"), ("target", "1:", "")):
        for name, (array, axes) in found.items():
            made.append(
                Declared(
                    name=f"{name}{ending}",
                    role=role,  # type: ignore[arg-type]
                    arrays=(array,),
                    axes=axes,
                    frames=frames,
                )
            )
    return made
