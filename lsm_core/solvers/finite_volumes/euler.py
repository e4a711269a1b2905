"""Steady flow of a compressible gas without viscosity around a body, by finite volumes.

d/dt (density, momentum, energy) + div (fluxes of them) = 0, in the steady state

Fluxes are Roe's, between states reconstructed with van Albada's limiter: of second order where the
flow is smooth, sharp and monotone at shocks. The steady state is the root of the flux balances,
found by Newton's method with a local time step that grows as the balances settle (pseudo-transient
continuation); each linear system is solved by GMRES with an incomplete factorisation.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, gmres

from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_volumes import euler_fluxes, euler_jacobian
from lsm_core.solvers.finite_volumes.c_mesh import CMesh


@dataclass(frozen=True, kw_only=True)
class FreeStream:
    """The undisturbed gas, in units of its own density and pressure; the angle is in degrees."""

    mach: float = 0.8
    angle_of_attack: float = 0.0
    heat_ratio: float = 1.4

    @property
    def state(self) -> Float[np.ndarray, "4"]:
        """Return density, velocity x, velocity y and pressure."""
        speed, angle = self.mach * np.sqrt(self.heat_ratio), np.deg2rad(self.angle_of_attack)
        return np.array([1.0, speed * np.cos(angle), speed * np.sin(angle), 1.0])

    @property
    def dynamic_pressure(self) -> float:
        """Return half of density times speed squared."""
        return 0.5 * self.heat_ratio * self.mach**2


@dataclass(frozen=True, kw_only=True)
class EulerScheme:
    """Numerical choices: the limiter, when to stop, and how fast the time step may grow.

    The residual is the Euclidean norm of all balances, relative to that of the free stream on the
    same mesh, which is where a solve without a start begins. A Newton step never changes a density
    or pressure by more than `largest_change` of itself.
    """

    limiter_threshold: float = 1e-3
    tolerance: float = 1e-8
    max_iterations: int = 150
    first_courant: float = 20.0
    slowest_growth: float = 1.1
    fastest_growth: float = 2.0
    largest_change: float = 0.5
    linear_tolerance: float = 0.05
    n_krylov: int = 60


@dataclass(frozen=True, kw_only=True)
class EulerFlow:
    """A steady state: cell states with two filled ghost layers, and the history of residuals."""

    states: Float[np.ndarray, "padded_i padded_j 4"]
    residuals: Float[np.ndarray, " evaluation"]


def solve_euler(
    mesh: CMesh,
    stream: FreeStream,
    scheme: EulerScheme,
    start: Float[np.ndarray, "padded_i padded_j 4"] | None = None,
) -> EulerFlow:
    """Return the steady flow; raise `SolveFailed` when the residual stays above the tolerance.

    Without a start, which may come from another body on a mesh of the same size, the gas starts to
    move all at once.
    """
    balance = EulerBalance(mesh=mesh, stream=stream, limiter_threshold=scheme.limiter_threshold)
    states = balance.free_stream()
    # Around a flat plate the free stream is the solution, and leaves nothing to compare with.
    reference = max(float(np.linalg.norm(balance.residual(states))), 1e-3)
    if start is not None:
        states = start.copy()
    courant = scheme.first_courant
    residual = balance.residual(states)
    history = [float(np.linalg.norm(residual)) / reference]
    while not history[-1] <= scheme.tolerance:  # also when it is not a number
        if len(history) > scheme.max_iterations or not np.isfinite(history[-1]):
            method = "Newton's method for the steady Euler equations"
            raise SolveFailed(method, len(history) - 1, history[-1], scheme.tolerance)
        change = _newton_change(balance, states, residual, courant, scheme)
        inner = states[2:-2, 2:-2]
        relative = np.abs(change[..., [0, 3]]) / inner[..., [0, 3]]
        share = min(1.0, scheme.largest_change / float(np.max(relative)))
        inner += share * change
        residual = balance.residual(states)
        history.append(float(np.linalg.norm(residual)) / reference)
        courant *= 0.5 if share < 1 else _growth(history[-2], history[-1], scheme)
    return EulerFlow(states=states, residuals=np.array(history))


def _growth(before: float, after: float, scheme: EulerScheme) -> float:
    """Return the growth of the time step: faster, the faster the residual falls."""
    progress = (before / after) ** 1.5 if after > 0 else np.inf
    return min(max(progress, scheme.slowest_growth), scheme.fastest_growth)


def _newton_change(
    balance: "EulerBalance",
    states: Float[np.ndarray, "padded_i padded_j 4"],
    residual: Float[np.ndarray, "i j 4"],
    courant: float,
    scheme: EulerScheme,
) -> Float[np.ndarray, "i j 4"]:
    """Return the change of the cell states over one implicit step of this Courant number."""
    derivative = balance.derivative(states, courant)
    size = (residual.size, residual.size)
    change, _ = gmres(
        LinearOperator(size, matvec=derivative.multiply, dtype=np.float64),
        -residual.ravel(),
        M=LinearOperator(size, matvec=derivative.precondition, dtype=np.float64),
        rtol=scheme.linear_tolerance,
        restart=scheme.n_krylov,
        maxiter=1,
    )
    return change.reshape(residual.shape)


@dataclass(frozen=True, kw_only=True)
class EulerBalance:
    """The flux balances of all cells as a function of their states, and its derivative."""

    mesh: CMesh
    stream: FreeStream
    limiter_threshold: float

    def free_stream(self) -> Float[np.ndarray, "padded_i padded_j 4"]:
        """Return the undisturbed gas in all cells."""
        n_i, n_j = self.mesh.n_cells
        return np.tile(self.stream.state, (n_i + 4, n_j + 4, 1))

    def residual(
        self, states: Float[np.ndarray, "padded_i padded_j 4"]
    ) -> Float[np.ndarray, "i j 4"]:
        """Return what leaves each cell in unit time; fills the ghost layers of the states."""
        mesh = self.mesh
        euler_fluxes.fill_ghosts(states, mesh.n_wake, self.stream.state)
        n_i, n_j = mesh.n_cells
        leaving_i, leaving_j = np.zeros((n_i, n_j, 4)), np.zeros((n_j, n_i, 4))
        for geometry, leaving in zip(self._axes(states), (leaving_i, leaving_j), strict=True):
            euler_fluxes.add_fluxes(
                *geometry, self.stream.heat_ratio, self.limiter_threshold, leaving
            )
        euler_fluxes.add_wall_fluxes(states, mesh.normals_j, mesh.n_wake, leaving_i)
        return leaving_i + leaving_j.swapaxes(0, 1)

    def derivative(
        self, states: Float[np.ndarray, "padded_i padded_j 4"], courant: float
    ) -> "EulerDerivative":
        """Return the derivative of the residual plus the inertia of a local time step.

        The step of a cell is about `courant` times the time that flow and sound take to cross it.
        The ghost layers of the states must be filled.
        """
        n_i, n_j = self.mesh.n_cells
        heat_ratio, threshold = self.stream.heat_ratio, self.limiter_threshold
        result = EulerDerivative(
            n_wake=self.mesh.n_wake,
            wide_i=np.zeros((n_i, n_j, 5, 4, 4)),
            wide_j=np.zeros((n_j, n_i, 5, 4, 4)),
            narrow_i=np.zeros((n_i, n_j, 3, 4, 4)),
            narrow_j=np.zeros((n_j, n_i, 3, 4, 4)),
            inverse_pivots=np.empty((n_i, n_j, 4, 4)),
        )
        speeds_i, speeds_j = np.zeros((n_i, n_j)), np.zeros((n_j, n_i))
        for (turned, normals, is_open), wide, narrow, speeds in zip(
            self._axes(states),
            (result.wide_i, result.wide_j),
            (result.narrow_i, result.narrow_j),
            (speeds_i, speeds_j),
            strict=True,
        ):
            euler_jacobian.add_flux_derivatives(
                turned, normals, is_open, heat_ratio, threshold, wide, narrow
            )
            euler_fluxes.add_wave_speeds(turned, normals, heat_ratio, speeds)
        euler_jacobian.add_wall_derivatives(
            self.mesh.normals_j, result.n_wake, result.wide_j, result.narrow_j
        )
        rates = (speeds_i + speeds_j.T) / (2 * courant)
        euler_jacobian.add_time_term(states, rates, heat_ratio, result.wide_i, result.narrow_i)
        euler_jacobian.factorize(result.narrow_i, result.narrow_j, result.inverse_pivots)
        return result

    def _axes(
        self, states: Float[np.ndarray, "padded_i padded_j 4"]
    ) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]:
        """Return states, normals and open first faces with each of the two axes in front."""
        n_i, n_j = self.mesh.n_cells
        off_wall = np.ones(n_i, dtype=bool)
        off_wall[self.mesh.wall] = False
        return (
            (states, self.mesh.normals_i, np.ones(n_j, dtype=bool)),
            (np.ascontiguousarray(states.swapaxes(0, 1)), self.mesh.normals_j, off_wall),
        )


@dataclass(frozen=True, kw_only=True)
class EulerDerivative:
    """A derivative of the balances, ready to multiply and, approximately, to divide by.

    Its blocks are those of `euler_jacobian.py`.
    """

    n_wake: int
    wide_i: Float[np.ndarray, "i j 5 4 4"]
    wide_j: Float[np.ndarray, "j i 5 4 4"]
    narrow_i: Float[np.ndarray, "i j 3 4 4"]
    narrow_j: Float[np.ndarray, "j i 3 4 4"]
    inverse_pivots: Float[np.ndarray, "i j 4 4"]

    def multiply(self, change: Float[np.ndarray, " unknown"]) -> Float[np.ndarray, " unknown"]:
        """Return the derivative of the residual along a change of all cell states."""
        n_i, n_j = self.wide_i.shape[:2]
        padded = np.zeros((n_i + 4, n_j + 4, 4))
        padded[2:-2, 2:-2] = change.reshape(n_i, n_j, 4)
        euler_fluxes.fill_ghosts(padded, self.n_wake, np.zeros(4))
        product_i, product_j = np.empty((n_i, n_j, 4)), np.empty((n_j, n_i, 4))
        euler_jacobian.multiply(self.wide_i, padded, product_i)
        turned = np.ascontiguousarray(padded.swapaxes(0, 1))
        euler_jacobian.multiply(self.wide_j, turned, product_j)
        return (product_i + product_j.swapaxes(0, 1)).ravel()

    def precondition(self, leaving: Float[np.ndarray, " unknown"]) -> Float[np.ndarray, " unknown"]:
        """Return roughly the change of states that changes the residual by this much."""
        n_i, n_j = self.wide_i.shape[:2]
        solution = np.empty((n_i, n_j, 4))
        right_side = np.ascontiguousarray(leaving).reshape(n_i, n_j, 4)
        euler_jacobian.substitute(
            self.narrow_i, self.narrow_j, self.inverse_pivots, right_side, solution
        )
        return solution.ravel()


def node_states(
    mesh: CMesh, states: Float[np.ndarray, "padded_i padded_j 4"]
) -> Float[np.ndarray, "i_nodes j_nodes 4"]:
    """Return the states at the nodes, each the mean of the four cells around it.

    Wall nodes are extrapolated from the cells above, far nodes lean half on the free stream, and
    outflow nodes take what arrives. The trailing edge, two nodes in one place, has one state.
    """
    padded = states.copy()
    padded[1], padded[-2] = padded[2], padded[-3]
    cells = padded[1:-1, 1:-1]
    nodes = (cells[1:, 1:] + cells[1:, :-1] + cells[:-1, 1:] + cells[:-1, :-1]) / 4
    edges = [mesh.n_wake, mesh.n_cells[0] - mesh.n_wake]
    nodes[edges, 0] = np.mean(nodes[edges, 0], axis=0)
    return nodes


def mach_number(
    states: Float[np.ndarray, "*points 4"], heat_ratio: float
) -> Float[np.ndarray, "*points"]:
    """Return the speed of the gas over that of sound."""
    density, velocity_x, velocity_y, pressure = np.moveaxis(states, -1, 0)
    return np.hypot(velocity_x, velocity_y) / np.sqrt(heat_ratio * pressure / density)


def lift_and_drag(
    mesh: CMesh, stream: FreeStream, states: Float[np.ndarray, "padded_i padded_j 4"]
) -> tuple[float, float]:
    """Return the coefficients of the pressure force on the wall across and along the stream."""
    pressure = 1.5 * states[2:-2, 2, 3] - 0.5 * states[2:-2, 3, 3]
    excess = pressure[mesh.wall, None] - 1.0
    force = -np.sum(excess * mesh.normals_j[0, mesh.wall], axis=0) / stream.dynamic_pressure
    angle = np.deg2rad(stream.angle_of_attack)
    lift = force[1] * np.cos(angle) - force[0] * np.sin(angle)
    drag = force[0] * np.cos(angle) + force[1] * np.sin(angle)
    return float(lift), float(drag)
