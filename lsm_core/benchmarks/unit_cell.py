"""The elastic unit cell with a random void, which two benchmarks show in two ways."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.problems.variable import Variable
from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_elements.hyperelasticity import (
    Equilibrium,
    MooneyRivlin,
    cauchy_stress,
    solve_equilibrium,
    von_mises,
)
from lsm_core.solvers.finite_elements.quadratic_quads import (
    edge_loads,
    folded_elements,
    gauss_points,
    physical_positions,
)
from lsm_core.solvers.finite_elements.void_mesh import CellMesh, Void, draw_void, mesh_unit_cell
from lsm_core.solvers.random_fields import random_stream

MAX_ITERATIONS = 12


@dataclass(frozen=True, kw_only=True)
class StressedCell:
    """One solved unit cell: its void, and the von Mises stress at its Gauss points."""

    void: Void
    points: Float[np.ndarray, "points 2"]
    stress: Float[np.ndarray, " points"]
    residuals: Float[np.ndarray, " iterations"]
    """Newton's residuals relative to the load, from before the first correction on."""


@dataclass(frozen=True, kw_only=True)
class UnitCell(Benchmark):
    """A square rubber sheet with a void, clamped at the bottom and pulled at the top.

    Lengths are in units of the cell, stresses in Pa. The default mesh has 36 x 3 elements with nine
    Gauss points each: 972 points.
    """

    n_modes: int = 10
    smallest_radius: float = 0.2
    largest_radius: float = 0.4
    first_modulus: float = 1.863e5
    second_modulus: float = 9.79e3
    traction: float = 100.0
    n_around: int = 36
    n_outward: int = 3

    def __post_init__(self) -> None:
        if self.n_around < 8 or self.n_around % 4:
            raise ValueError(f"n_around must be a multiple of 4 from 8 on, got {self.n_around}")
        if self.n_outward < 1 or self.n_modes < 0:
            raise ValueError(
                f"n_outward must be at least 1 and n_modes at least 0, "
                f"got {self.n_outward} and {self.n_modes}"
            )
        if min(self.first_modulus, self.second_modulus) <= 0:
            raise ValueError(
                f"the moduli must be positive, got {self.first_modulus} and {self.second_modulus}"
            )

    def solve(self, seed: int) -> StressedCell:
        """Return the equilibrium of the void of one seed.

        Every unit cell benchmark draws from the same stream, so that one seed is one void in all.
        """
        void = draw_void(
            random_stream("elasticity", seed),
            n_modes=self.n_modes,
            smallest_radius=self.smallest_radius,
            largest_radius=self.largest_radius,
        )
        mesh = mesh_unit_cell(void, n_around=self.n_around, n_outward=self.n_outward)
        n_folded = float(folded_elements(mesh).sum())
        if n_folded:
            raise SolveFailed("mesh of the unit cell (folded elements)", 0, n_folded, 0.0)
        equilibrium = self._pull(mesh)
        stress = cauchy_stress(mesh, self._material, equilibrium.displacement, gauss_points())
        return StressedCell(
            void=void,
            points=physical_positions(mesh, gauss_points()).reshape(-1, 2),
            stress=von_mises(stress).ravel(),
            residuals=np.array(equilibrium.residuals),
        )

    @property
    def convergence_variables(self) -> tuple[Variable, ...]:
        """Return what every sample of a unit cell says about Newton's method."""
        return (
            Variable(
                name="residuals",
                dims=("iteration",),
                shape=(MAX_ITERATIONS + 1,),
                role="parameter",
                description="residual over load before each Newton iteration and after the last; "
                "then NaN",
            ),
            Variable(
                name="n_iterations",
                dims=(),
                shape=(),
                role="parameter",
                description="number of Newton iterations",
            ),
        )

    def _convergence(self, cell: StressedCell) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
        """Return the values of the convergence variables."""
        residuals = np.full(MAX_ITERATIONS + 1, np.nan, dtype=np.float32)
        residuals[: cell.residuals.size] = cell.residuals
        n_iterations = np.array(cell.residuals.size - 1, dtype=np.float32)
        return {"residuals": residuals, "n_iterations": n_iterations}

    @property
    def _material(self) -> MooneyRivlin:
        return MooneyRivlin(first_modulus=self.first_modulus, second_modulus=self.second_modulus)

    def _pull(self, mesh: CellMesh) -> Equilibrium:
        """Return the equilibrium with the bottom clamped and the traction on the top."""
        clamped = np.zeros(mesh.nodes.shape, dtype=bool)
        clamped[mesh.bottom] = True
        return solve_equilibrium(
            mesh,
            self._material,
            loads=edge_loads(mesh, mesh.top_edges, np.array([0.0, self.traction])),
            fixed=clamped,
            max_iterations=MAX_ITERATIONS,
        )
