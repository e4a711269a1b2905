"""A problem without a solver: known by its data alone, which somebody brought."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import numpy as np

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.problems.panel import Panel
from lsm_core.problems.sample import Sample
from lsm_core.problems.shape import ProblemShape
from lsm_core.problems.variable import Role, Variable

POSITIONS = "positions"
"""The variable that says where points are, where they are not on a regular grid."""
WEIGHT = "weight"
"""The variable that says how much each point counts: 0 if there is none at its place."""
SHARE_OF_SLICE = 0.1
"""How much of a body's depth is drawn of points in space."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The coordinates along one axis of a regular grid."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class GivenProblem(Benchmark):
    """Which arrays a sample has, on which geometry; nothing is known of the equation behind them.

    Where points are not on a regular grid, the first input is their positions. Samples whose
    numbers of points differ are as long as the longest: the variable `weight` is 0 where a sample
    has no point. Elsewhere it is the volume around the point, or 1.
    """

    # Of a solver's class these are facts, of given data they are fields.
    name: str  # type: ignore[misc]
    title: str  # type: ignore[misc]
    space: tuple[str, ...]  # type: ignore[misc]
    positions: Literal[  # type: ignore[misc]
        "nodes", "cell centres", "periodic nodes", "scattered points"
    ]
    arrays: tuple[Variable, ...]
    axes: tuple[Axis, ...] = ()
    steps: int = 1
    same_points: bool = False
    """Whether a point, by its number, is at the same place in every sample."""

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the arrays of a sample."""
        return self.arrays

    @property
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the coordinates along the axes of a regular grid."""
        return {axis.name: np.array(axis.values) for axis in self.axes}

    @property
    def n_steps(self) -> int:
        """Return how often a model is applied to reach the target."""
        return self.steps

    @property
    def shape(self) -> ProblemShape:
        """Return the size of the learning problem; targets may all be without points."""
        field = next(v for v in self.arrays if self.is_field(v))

        def n_channels(role: Role) -> int:
            own = self.with_role(role)
            return sum(prod(v.shape[len(self.space) * self.is_field(v) :]) for v in own)

        return ProblemShape(
            space=field.shape[: len(self.space)],
            n_inputs=n_channels("input"),
            n_outputs=n_channels("target"),
        )

    @property
    def has_weight(self) -> bool:
        """Return whether points count differently, or are not there at all."""
        return any(variable.name == WEIGHT for variable in self.arrays)

    @property
    def is_mesh(self) -> bool:
        """Return whether positions are part of a sample."""
        return any(variable.name == POSITIONS for variable in self.arrays)

    @property
    def n_position_axes(self) -> int:
        """Return the number of coordinates of a point."""
        return next((v.shape[-1] for v in self.arrays if v.name == POSITIONS), len(self.space))

    def is_field(self, variable: Variable) -> bool:
        """Return whether a variable has values at points; if not, it is one for the whole."""
        return variable.dims[: len(self.space)] == self.space

    @property
    def names(self) -> list[str]:
        """Return the variables that training reads."""
        read = (*self.with_role("input"), *self.with_role("target"))
        return [v.name for v in read] + [WEIGHT] * self.has_weight

    def generate(self, seed: int) -> Sample:
        """Raise LookupError: no seed makes what was given."""
        raise LookupError(f"the samples of {self.name} were given; seed {seed} makes none")

    def at_resolution(self, n_points: int) -> "GivenProblem":
        """Return the problem on another number of points along each axis of a regular grid."""
        if self.is_mesh:
            raise ValueError(f"{self.name} has the points that were given, and no resolution")
        sizes = dict.fromkeys(self.space, n_points)
        arrays = tuple(
            replace(v, shape=tuple(sizes.get(d, n) for d, n in zip(v.dims, v.shape, strict=True)))
            for v in self.arrays
        )
        axes = tuple(
            replace(axis, values=tuple(np.linspace(axis.values[0], axis.values[-1], n_points)))
            if axis.name in sizes
            else axis
            for axis in self.axes
        )
        return replace(self, arrays=arrays, axes=axes)

    def positions_of(self, sample: Sample) -> tuple[np.ndarray[Any, np.dtype[Any]], ...]:
        """Return where the values of a field stand, one array an axis."""
        if self.is_mesh:
            return tuple(np.moveaxis(sample[POSITIONS], -1, 0))
        sizes = self.shape.space
        axes = [
            self.coordinates.get(axis, np.linspace(0, 1, size))
            for axis, size in zip(self.space, sizes, strict=True)
        ]
        return tuple(np.meshgrid(*axes, indexing="ij"))

    def panels(self, sample: Sample) -> list[Panel]:
        """Return the fields of a sample, inputs first; of several channels the last is drawn.

        Of three dimensions a slice through the middle is drawn.
        """
        positions = self.positions_of(sample)
        shape, shown = positions[0].shape, _slice(positions)
        if self.has_weight and WEIGHT in sample:
            shown = (shown[0] & (sample[WEIGHT] > 0), shown[1])
        where, axes = shown
        fields = [
            v
            for v in (*self.with_role("input"), *self.with_role("target"))
            if v.name != POSITIONS and self.is_field(v)
        ]
        if not any(variable.role == "target" for variable in fields):
            fields.append(self.with_role("target")[-1])  # a number, drawn at every point

        def values(variable: Variable) -> np.ndarray[Any, np.dtype[Any]]:
            if self.is_field(variable):
                return sample[variable.name].reshape(*shape, -1)[..., -1]
            return np.full(shape, np.ravel(sample[variable.name])[-1])

        return [
            Panel(
                title=variable.name.replace("_", " "),
                positions=tuple(_taken(positions[axis], where) for axis in axes),
                values=_taken(values(variable), where),
                unit=variable.unit,
            )
            for variable in fields
        ]


def _taken(
    values: np.ndarray[Any, np.dtype[Any]], where: np.ndarray[Any, np.dtype[Any]]
) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the values at some points; a slice of a grid stays one."""
    if where.ndim == 3:
        depth = int(np.argmax(where.any(axis=(0, 1))))
        return values[..., depth]
    return values if where.all() else values[where]


def _slice(
    positions: tuple[np.ndarray[Any, np.dtype[Any]], ...],
) -> tuple[np.ndarray[Any, np.dtype[Any]], tuple[int, ...]]:
    """Return which points are drawn, and which of their coordinates: at most two."""
    shape = positions[0].shape
    everywhere = np.ones(shape, bool)
    if len(positions) < 3:
        return everywhere, tuple(range(len(positions)))
    if len(shape) == 3:
        middle = np.zeros(shape, bool)
        middle[..., shape[2] // 2] = True
        return middle, (0, 1)
    extents = [float(np.ptp(x)) for x in positions]
    depth = int(np.argmin(extents))
    plane = tuple(axis for axis in range(3) if axis != depth)
    away = np.abs(positions[depth] - np.median(positions[depth]))
    near = away <= max(SHARE_OF_SLICE * extents[depth], float(np.min(away)))
    return (near if near.sum() > 2 else everywhere), plane
