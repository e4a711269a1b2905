"""Elasticity on a grid: from the mask of the material to the stress in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

from lsm_core.benchmarks.unit_cell import StressedCell, UnitCell
from lsm_core.problems.sample import Sample
from lsm_core.problems.variable import Variable


@dataclass(frozen=True, kw_only=True)
class ElasticityGrid(UnitCell):
    """The stress of the unit cell, interpolated to the nodes of a regular grid.

    The sample of a seed shows the same cell as the scattered points of that seed.
    """

    name: ClassVar[str] = "elasticity_g"
    title: ClassVar[str] = "Elasticity on a grid"
    space: ClassVar[tuple[str, ...]] = ("x", "y")
    positions: ClassVar[Literal["nodes"]] = "nodes"

    n_nodes: int = 41

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the mask and the masked stress."""
        shape = (self.n_nodes, self.n_nodes)
        return (
            Variable(
                name="mask",
                dims=("x", "y"),
                shape=shape,
                role="input",
                description="1 in the material, 0 in the void",
            ),
            Variable(
                name="stress",
                dims=("x", "y"),
                shape=shape,
                role="target",
                unit="Pa",
                description="von Mises stress, 0 in the void",
            ),
            *self.convergence_variables,
        )

    @property
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the nodes along the two sides of the unit cell."""
        along = np.linspace(0.0, 1.0, self.n_nodes)
        return {"x": along, "y": along}

    def generate(self, seed: int) -> Sample:
        """Return the mask of one unit cell and its stress on the grid."""
        cell = self.solve(seed)
        along = self.coordinates["x"]
        nodes = np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1)
        mask = ~cell.void.covers(nodes)
        return {
            "mask": mask.astype(np.float32),
            "stress": (mask * interpolate_stress(cell, nodes)).astype(np.float32),
            **self._convergence(cell),
        }


def interpolate_stress(
    cell: StressedCell, nodes: Float[np.ndarray, "*grid 2"]
) -> Float[np.ndarray, "*grid"]:
    """Return the stress at any points of the cell, linear on the triangles of the Gauss points.

    Beyond the outermost Gauss points the stress is that of the nearest one. The triangles also
    bridge the void: values there mean nothing and are for the mask to remove.
    """
    values = LinearNDInterpolator(cell.points, cell.stress)(nodes)
    outside = np.isnan(values)
    values[outside] = NearestNDInterpolator(cell.points, cell.stress)(nodes[outside])
    return values
