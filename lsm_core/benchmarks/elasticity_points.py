"""Elasticity on scattered points: from where the material is to the stress in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from lsm_core.benchmarks.unit_cell import UnitCell
from lsm_core.problems.panel import Panel
from lsm_core.problems.sample import Sample
from lsm_core.problems.variable import Variable

N_RADII = 42


@dataclass(frozen=True, kw_only=True)
class ElasticityPoints(UnitCell):
    """The stress at the Gauss points of the mesh, seen as a cloud of points."""

    name: ClassVar[str] = "elasticity_p"
    title: ClassVar[str] = "Elasticity on points"
    space: ClassVar[tuple[str, ...]] = ("point",)
    positions: ClassVar[Literal["scattered points"]] = "scattered points"

    @property
    def n_points(self) -> int:
        """Return the number of Gauss points, nine an element."""
        return 9 * self.n_around * self.n_outward

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the points, the stress at them, and the radius of the void around the circle."""
        return (
            Variable(
                name="points",
                dims=("point", "component"),
                shape=(self.n_points, 2),
                role="input",
                description="position in the unit cell",
            ),
            Variable(
                name="stress",
                dims=("point",),
                shape=(self.n_points,),
                role="target",
                unit="Pa",
                description="von Mises stress",
            ),
            Variable(
                name="radii",
                dims=("angle",),
                shape=(N_RADII,),
                role="input",
                description="radius of the void; the last angle is the first",
            ),
            *self.convergence_variables,
        )

    @property
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the angles of the radii."""
        return {"angle": np.linspace(0.0, 2 * np.pi, N_RADII)}

    def panels(self, sample: Sample) -> list[Panel]:
        """Return the stress at the points."""
        x, y = sample["points"].T
        return [Panel(title="stress", positions=(x, y), values=sample["stress"], unit="Pa")]

    def generate(self, seed: int) -> Sample:
        """Return the points of one unit cell and the stress at them."""
        cell = self.solve(seed)
        radii = cell.void.radius(self.coordinates["angle"])
        radii[-1] = radii[0]
        return {
            "points": cell.points.astype(np.float32),
            "stress": cell.stress.astype(np.float32),
            "radii": radii.astype(np.float32),
            **self._convergence(cell),
        }
