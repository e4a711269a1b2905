"""Pipe: from the shape of a bent pipe to the steady flow of a viscous fluid through it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.problems.panel import Panel
from lsm_core.problems.sample import Sample
from lsm_core.problems.variable import Variable
from lsm_core.solvers.finite_elements.incompressible_flow import Flow, FlowProblem, solve_flow
from lsm_core.solvers.finite_elements.taylor_hood import taylor_hood_space

RANDOM_STREAM = 4001
N_CONTROLS = 10
"""Value and slope at the five knots of the centreline."""


@dataclass(frozen=True, kw_only=True)
class Pipe(Benchmark):
    """Steady incompressible flow through a pipe whose centreline is a random smooth curve.

    The pipe is `length` long and 1 wide, sheared along y by the centreline. Fluid enters with a
    parabolic profile of velocity `inlet_peak`, sticks to the walls and leaves freely. Each of the
    `n_elements` along an axis spans three nodes, so the mesh has 2 n + 1 nodes along it.
    """

    name: ClassVar[str] = "pipe"
    title: ClassVar[str] = "Pipe: steady incompressible flow"
    space: ClassVar[tuple[str, ...]] = ("x", "y")
    positions: ClassVar[Literal["nodes"]] = "nodes"

    n_elements: int = 64
    length: float = 10.0
    viscosity: float = 0.005
    inlet_peak: float = 0.25
    centreline_range: float = 1.0
    tolerance: float = 1e-9
    max_iterations: int = 20

    def __post_init__(self) -> None:
        if self.n_elements < 2:
            raise ValueError(f"n_elements must be at least 2, got {self.n_elements}")
        if self.viscosity <= 0:
            raise ValueError(f"viscosity must be positive, got {self.viscosity}")

    @property
    def n_nodes(self) -> int:
        """Return the number of nodes along either axis."""
        return 2 * self.n_elements + 1

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the mesh, the flow on its nodes, the centreline and how the solver converged."""

        def array(
            name: str,
            role: Literal["input", "target", "parameter"],
            description: str,
            dims: tuple[str, ...] = self.space,
            shape: tuple[int, ...] = (self.n_nodes, self.n_nodes),
        ) -> Variable:
            return Variable(name=name, dims=dims, shape=shape, role=role, description=description)

        n_residuals = self.max_iterations + 1
        knots = "value and slope at the five knots, alternating"
        history = "residual before each Newton iteration and after the last, rounded; then NaN"
        return (
            array("mesh_x", "input", "position of the node along the pipe"),
            array("mesh_y", "input", "position of the node across the pipe"),
            array("velocity_x", "target", "velocity along x"),
            array("velocity_y", "parameter", "velocity along y"),
            array("pressure", "parameter", "pressure, linear between every second node"),
            array("centreline", "parameter", knots, ("control",), (N_CONTROLS,)),
            array("residuals", "parameter", history, ("iteration",), (n_residuals,)),
            array("n_iterations", "parameter", "number of Newton iterations", (), ()),
        )

    @property
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the numbers of the nodes along both axes; positions differ from pipe to pipe."""
        return {axis: np.arange(self.n_nodes, dtype=np.float64) for axis in self.space}

    def panels(self, sample: Sample) -> list[Panel]:
        """Return the flow on its mesh; the mesh is the input."""
        mesh = (sample["mesh_x"], sample["mesh_y"])
        return [
            Panel(
                title="velocity x",
                positions=mesh,
                values=sample["velocity_x"],
                true_to_scale=False,
            )
        ]

    def generate(self, seed: int) -> Sample:
        """Return the pipe of one seed and the flow through it."""
        centreline = self.draw_centreline(seed)
        problem = self.flow_problem(centreline)
        flow = solve_flow(problem, tolerance=self.tolerance, max_iterations=self.max_iterations)
        return self._sample(centreline, problem, flow)

    def draw_centreline(self, seed: int) -> Float[np.ndarray, " control"]:
        """Return value and slope at the knots, uniform at random except for the inlet value 0."""
        random = np.random.default_rng([RANDOM_STREAM, seed])
        free = random.uniform(-self.centreline_range, self.centreline_range, N_CONTROLS - 1)
        return np.concatenate([[0.0], free])

    def flow_problem(self, centreline: Float[np.ndarray, " control"]) -> FlowProblem:
        """Return the flow problem in a pipe, started from Poiseuille flow along the centreline."""
        space = taylor_hood_space((self.n_nodes, self.n_nodes))
        x = np.linspace(0.0, self.length, self.n_nodes)
        across = np.linspace(-0.5, 0.5, self.n_nodes)
        shift, slope = hermite_curve(centreline, x, self.length)
        mesh_x, offset = np.meshgrid(x, across, indexing="ij")
        nodes = np.stack([mesh_x, offset + shift[:, None]], axis=-1)

        velocity_x = self.inlet_peak * (1 - 4 * offset**2)
        velocity_y = velocity_x * slope[:, None]
        velocity_y[0] = 0.0
        pressure_drop = 8 * self.viscosity * self.inlet_peak * (self.length - mesh_x[::2, ::2])

        is_given = np.zeros(space.n_nodes, dtype=bool)
        is_given[0, :] = is_given[:, 0] = is_given[:, -1] = True
        no_pressure = np.zeros(space.n_pressure_nodes, dtype=bool)
        return FlowProblem(
            nodes=nodes,
            viscosity=self.viscosity,
            is_fixed=np.concatenate([is_given.ravel(), is_given.ravel(), no_pressure.ravel()]),
            start=space.join(velocity_x, velocity_y, pressure_drop),
        )

    def _sample(
        self, centreline: Float[np.ndarray, " control"], problem: FlowProblem, flow: Flow
    ) -> Sample:
        """Return the arrays to store."""
        residuals = np.full(self.max_iterations + 1, np.nan)
        residuals[: flow.residuals.size] = [_rounded(value) for value in flow.residuals]
        arrays = {
            "mesh_x": problem.nodes[..., 0],
            "mesh_y": problem.nodes[..., 1],
            "velocity_x": flow.velocity_x,
            "velocity_y": flow.velocity_y,
            "pressure": between_nodes(flow.pressure),
            "centreline": centreline,
            "residuals": residuals,
            "n_iterations": np.array(flow.residuals.size - 1),
        }
        return {name: values.astype(np.float32) for name, values in arrays.items()}


def hermite_curve(
    controls: Float[np.ndarray, " control"], x: Float[np.ndarray, " point"], length: float
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Return a piecewise cubic curve over [0, length] and its derivative.

    The controls alternate value and slope at equally spaced knots; a slope is per element, that is
    the derivative times the distance of two knots.
    """
    values, slopes = controls[0::2], controls[1::2]
    width = length / (values.size - 1)
    left = np.minimum((x / width).astype(int), values.size - 2)
    t = x / width - left
    basis = [1 - 3 * t**2 + 2 * t**3, t - 2 * t**2 + t**3, 3 * t**2 - 2 * t**3, t**3 - t**2]
    basis_slope = [6 * t**2 - 6 * t, 1 - 4 * t + 3 * t**2, 6 * t - 6 * t**2, 3 * t**2 - 2 * t]
    ends = [values[left], slopes[left], values[left + 1], slopes[left + 1]]
    curve = sum((b * end for b, end in zip(basis, ends, strict=True)), np.zeros_like(x))
    derivative = sum((b * end for b, end in zip(basis_slope, ends, strict=True)), np.zeros_like(x))
    return curve, derivative / width


def between_nodes(
    pressure: Float[np.ndarray, "pressure_x pressure_y"],
) -> Float[np.ndarray, "x y"]:
    """Return the pressure at all nodes, bilinear between the nodes that carry it."""
    n_x, n_y = pressure.shape
    field = np.empty((2 * n_x - 1, 2 * n_y - 1))
    field[::2, ::2] = pressure
    field[1::2, ::2] = (pressure[1:] + pressure[:-1]) / 2
    field[:, 1::2] = (field[:, 2::2] + field[:, :-2:2]) / 2
    return field


def _rounded(residual: float) -> float:
    """Return a residual to three digits, and at least 1e-12.

    Below that it is rounding, which a threaded solver does not repeat: the same seed must give
    the same sample.
    """
    return max(float(f"{residual:.2e}"), 1e-12)
