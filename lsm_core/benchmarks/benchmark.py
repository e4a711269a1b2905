"""What every benchmark problem offers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, ClassVar, Literal

import numpy as np

from lsm_core.problems.panel import Panel
from lsm_core.problems.sample import Sample
from lsm_core.problems.shape import ProblemShape
from lsm_core.problems.variable import Role, Variable


@dataclass(frozen=True, kw_only=True)
class Benchmark(ABC):
    """A PDE problem with a solver: its fields are the physical and numerical parameters.

    A subclass is a frozen dataclass, so that a problem can be written down, compared and hashed.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    space: ClassVar[tuple[str, ...]]
    """Names of the axes on which a model works."""
    positions: ClassVar[Literal["nodes", "cell centres", "periodic nodes", "scattered points"]]
    """Where on its cells the values of a field stand."""

    @property
    @abstractmethod
    def variables(self) -> tuple[Variable, ...]:
        """Return the arrays of a sample, inputs and targets among them."""

    @property
    @abstractmethod
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the coordinates that all samples share, by the name of their axis."""

    @abstractmethod
    def generate(self, seed: int) -> Sample:
        """Return one sample: the same for the same seed, on any machine and in any order."""

    def generate_many(self, seeds: Sequence[int]) -> list[Sample]:
        """Return the samples of several seeds, each equal to the one generated alone."""
        return [self.generate(seed) for seed in seeds]

    def at_resolution(self, n_points: int) -> "Benchmark":
        """Return the same problem with another number of points along each axis of space."""
        raise ValueError(f"{self.name} has one resolution, that of its mesh; {n_points} is not it")

    @property
    def n_steps(self) -> int:
        """Return how often a model is applied to reach the target, each time to its own output.

        More than one for problems that step through time; the target then has one channel a step.
        """
        return 1

    def positions_of(self, sample: Sample) -> tuple[np.ndarray[Any, np.dtype[Any]], ...]:
        """Return where the values of a field stand, one array an axis, for pictures."""
        axes = [self.coordinates[axis] for axis in self.space]
        return tuple(np.meshgrid(*axes, indexing="ij"))

    def panels(self, sample: Sample) -> list[Panel]:
        """Return what to draw of a sample: inputs first, targets last.

        Of several channels the last is drawn.
        """
        positions = self.positions_of(sample)
        return [
            Panel(
                title=variable.name.replace("_", " "),
                positions=positions,
                values=sample[variable.name].reshape(*positions[0].shape, -1)[..., -1],
                unit=variable.unit,
            )
            for variable in (*self.with_role("input"), *self.with_role("target"))
        ]

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return asdict(self)

    def with_role(self, role: Role) -> tuple[Variable, ...]:
        """Return the variables that play one part."""
        return tuple(variable for variable in self.variables if variable.role == role)

    @property
    def shape(self) -> ProblemShape:
        """Return the size of the learning problem: axes beside those of space are channels."""
        space = self.with_role("target")[0].shape[: len(self.space)]

        def n_channels(role: Role) -> int:
            return sum(
                prod(
                    size for dim, size in zip(v.dims, v.shape, strict=True) if dim not in self.space
                )
                for v in self.with_role(role)
            )

        return ProblemShape(
            space=space, n_inputs=n_channels("input"), n_outputs=n_channels("target")
        )
