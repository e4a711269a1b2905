"""Airfoil: from the shape of a wing section to the transonic flow around it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.problems.panel import Panel
from lsm_core.problems.sample import Sample
from lsm_core.problems.variable import Variable
from lsm_core.solvers.finite_volumes.airfoil_mesh import AirfoilMeshSize, airfoil_mesh
from lsm_core.solvers.finite_volumes.c_mesh import CMesh, c_mesh
from lsm_core.solvers.finite_volumes.euler import (
    EulerFlow,
    EulerScheme,
    FreeStream,
    lift_and_drag,
    mach_number,
    node_states,
    solve_euler,
)

RANDOM_STREAM = 5001
N_CONTROLS = 8


@dataclass(frozen=True, kw_only=True)
class Airfoil(Benchmark):
    """Steady inviscid flow at Mach 0.8 around a NACA 0012 profile bent at random.

    The mesh has `n_wake` cells along each side of the wake, `n_surface` around the airfoil and
    `n_normal` out to the far field. The profile is bent by a design element of eight control nodes,
    moved along y by up to `displacement_range` chords; the first is held.
    """

    name: ClassVar[str] = "airfoil"
    title: ClassVar[str] = "Airfoil: transonic Euler flow"
    space: ClassVar[tuple[str, ...]] = ("x", "y")
    positions: ClassVar[Literal["nodes"]] = "nodes"

    n_wake: int = 50
    n_surface: int = 120
    n_normal: int = 50
    mach: float = 0.8
    angle_of_attack: float = 0.0
    heat_ratio: float = 1.4
    displacement_range: float = 0.05
    limiter_threshold: float = 1e-3
    tolerance: float = 1e-8
    max_iterations: int = 150

    def __post_init__(self) -> None:
        _ = self.mesh_size  # refuses impossible sizes
        if not 0 <= self.displacement_range <= 0.1:
            raise ValueError(
                f"displacement_range must be between 0 and 0.1, got {self.displacement_range}"
            )

    @property
    def mesh_size(self) -> AirfoilMeshSize:
        """Return the numbers of cells."""
        return AirfoilMeshSize(n_wake=self.n_wake, n_surface=self.n_surface, n_normal=self.n_normal)

    @property
    def stream(self) -> FreeStream:
        """Return the undisturbed flow."""
        return FreeStream(
            mach=self.mach, angle_of_attack=self.angle_of_attack, heat_ratio=self.heat_ratio
        )

    @property
    def scheme(self) -> EulerScheme:
        """Return the numerical choices."""
        return EulerScheme(
            limiter_threshold=self.limiter_threshold,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
        )

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the mesh, the flow on its nodes, the deformation and how the solver converged."""

        def array(
            name: str,
            role: Literal["input", "target", "parameter"],
            description: str,
            dims: tuple[str, ...] = self.space,
            shape: tuple[int, ...] = self.mesh_size.n_nodes,
        ) -> Variable:
            return Variable(name=name, dims=dims, shape=shape, role=role, description=description)

        n_residuals = self.max_iterations + 1
        history = "residual before each Newton iteration and after the last; then NaN"
        return (
            array("mesh_x", "input", "position of the node along the chord"),
            array("mesh_y", "input", "position of the node across the chord"),
            array("mach", "target", "speed of the gas over the speed of sound"),
            array("density", "parameter", "density over that of the free stream"),
            array("velocity_x", "parameter", "velocity along x"),
            array("velocity_y", "parameter", "velocity along y"),
            array("pressure", "parameter", "pressure over that of the free stream"),
            array("displacements", "parameter", "of the controls", ("control",), (N_CONTROLS,)),
            array("lift", "parameter", "lift coefficient", (), ()),
            array("drag", "parameter", "drag coefficient", (), ()),
            array("residuals", "parameter", history, ("iteration",), (n_residuals,)),
            array("n_iterations", "parameter", "number of Newton iterations", (), ()),
        )

    @property
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the numbers of the nodes along both axes; positions differ from mesh to mesh."""
        sizes = self.mesh_size.n_nodes
        return {
            axis: np.arange(n, dtype=np.float64) for axis, n in zip(self.space, sizes, strict=True)
        }

    def panels(self, sample: Sample) -> list[Panel]:
        """Return the Mach number near the profile, on its mesh; the mesh is the input."""
        mesh = (sample["mesh_x"], sample["mesh_y"])
        near = ((-0.6, 1.6), (-1.0, 1.0))
        return [Panel(title="Mach number", positions=mesh, values=sample["mach"], window=near)]

    def generate(self, seed: int) -> Sample:
        """Return the airfoil of one seed and the flow around it."""
        displacements = self.draw_displacements(seed)
        mesh = self.mesh(displacements)
        start = undeformed_flow(self).states
        flow = solve_euler(mesh, self.stream, self.scheme, start)
        return self._sample(displacements, mesh, flow)

    def draw_displacements(self, seed: int) -> Float[np.ndarray, "8"]:
        """Return the displacements of the control nodes, uniform at random but for the first."""
        random = np.random.default_rng([RANDOM_STREAM, seed])
        free = random.uniform(-self.displacement_range, self.displacement_range, N_CONTROLS - 1)
        return np.concatenate([[0.0], free])

    def mesh(self, displacements: Float[np.ndarray, "8"]) -> CMesh:
        """Return the mesh around the bent airfoil."""
        return c_mesh(airfoil_mesh(self.mesh_size, displacements), self.n_wake)

    def _sample(
        self, displacements: Float[np.ndarray, "8"], mesh: CMesh, flow: EulerFlow
    ) -> Sample:
        """Return the arrays to store."""
        states = node_states(mesh, flow.states)
        lift, drag = lift_and_drag(mesh, self.stream, flow.states)
        residuals = np.full(self.max_iterations + 1, np.nan)
        residuals[: flow.residuals.size] = flow.residuals
        arrays = {
            "mesh_x": mesh.nodes[..., 0],
            "mesh_y": mesh.nodes[..., 1],
            "mach": mach_number(states, self.heat_ratio),
            "density": states[..., 0],
            "velocity_x": states[..., 1],
            "velocity_y": states[..., 2],
            "pressure": states[..., 3],
            "displacements": displacements,
            "lift": np.array(lift),
            "drag": np.array(drag),
            "residuals": residuals,
            "n_iterations": np.array(flow.residuals.size - 1),
        }
        return {name: values.astype(np.float32) for name, values in arrays.items()}


@cache
def undeformed_flow(benchmark: Airfoil) -> EulerFlow:
    """Return the flow around the unbent airfoil, from which all others start.

    It follows from the parameters alone, so a sample is the same whichever process makes it first.
    """
    mesh = benchmark.mesh(np.zeros(N_CONTROLS))
    return solve_euler(mesh, benchmark.stream, benchmark.scheme)
