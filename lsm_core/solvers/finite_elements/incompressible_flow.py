"""Steady flow of an incompressible fluid by Taylor-Hood elements and Newton's method.

(u . grad) u - viscosity Laplacian u + grad p = f,   div u = 0

A part of the boundary on which nothing is fixed lets the fluid out freely
(viscosity du/dn - p n = 0), which also sets the level of the pressure. Velocity converges with the
third order of the element size, pressure with the second, both in the L2 norm.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias, no_type_check

import numpy as np
from jaxtyping import Bool, Float
from numba import njit

from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_elements.sparse_direct import direct_solver
from lsm_core.solvers.finite_elements.taylor_hood import (
    N_LOCAL,
    N_PRESSURE,
    N_VELOCITY,
    TaylorHoodSpace,
    reference_element,
    taylor_hood_space,
)

BodyForce: TypeAlias = Callable[[Float[np.ndarray, "*points 2"]], Float[np.ndarray, "*points 2"]]


@dataclass(frozen=True, kw_only=True)
class FlowProblem:
    """The fluid, its nodes, and the unknowns whose values are given.

    `is_fixed` and `start` are vectors in the order of `TaylorHoodSpace.join`. The start holds the
    given values where an unknown is fixed and a guess elsewhere.
    """

    nodes: Float[np.ndarray, "x y 2"]
    viscosity: float
    is_fixed: Bool[np.ndarray, " unknown"]
    start: Float[np.ndarray, " unknown"]
    body_force: BodyForce | None = None


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A solution: the velocity at all nodes, the pressure at every second node, the residuals."""

    velocity_x: Float[np.ndarray, "x y"]
    velocity_y: Float[np.ndarray, "x y"]
    pressure: Float[np.ndarray, "pressure_x pressure_y"]
    residuals: Float[np.ndarray, " evaluation"]


def solve_flow(problem: FlowProblem, *, tolerance: float = 1e-9, max_iterations: int = 20) -> Flow:
    """Return the steady flow; raise `SolveFailed` when the residual stays above the tolerance.

    The residual is the Euclidean norm of the discrete equations. Convergence is quadratic, so that
    a tolerance of 1e-9 costs at most one iteration more than 1e-5.
    """
    space = taylor_hood_space((problem.nodes.shape[0], problem.nodes.shape[1]))
    force = _force_at_points(problem, space)
    unknowns = problem.start.copy()
    residuals: list[float] = []
    with closing(direct_solver()) as linear_solver:
        for iteration in range(max_iterations + 1):
            values, residual = assemble_flow(problem, space, force, unknowns)
            residuals.append(float(np.linalg.norm(residual)))
            if residuals[-1] <= tolerance:
                velocity_x, velocity_y, pressure = space.split(unknowns)
                return Flow(
                    velocity_x=velocity_x,
                    velocity_y=velocity_y,
                    pressure=pressure,
                    residuals=np.array(residuals),
                )
            if iteration == max_iterations or not np.isfinite(residuals[-1]):
                break
            unknowns -= linear_solver.solve(space.matrix(values), residual)
    method = "Newton's method for steady flow"
    raise SolveFailed(method, len(residuals) - 1, residuals[-1], tolerance)


def assemble_flow(
    problem: FlowProblem,
    space: TaylorHoodSpace,
    force: Float[np.ndarray, "element point 2"],
    unknowns: Float[np.ndarray, " unknown"],
) -> tuple[Float[np.ndarray, " nonzeros"], Float[np.ndarray, " unknown"]]:
    """Return the values of the Jacobian and the residual.

    The row of a fixed unknown is the identity, its residual the distance from the given value.
    """
    reference = reference_element()
    values = np.zeros(space.indices.size)
    residual = np.zeros(space.n_unknowns)
    _add_elements(
        problem.nodes.reshape(-1, 2),
        space.element_nodes,
        space.element_unknowns,
        space.entries,
        reference.weights,
        reference.velocity,
        reference.velocity_gradient,
        reference.pressure,
        problem.viscosity,
        force,
        unknowns,
        values,
        residual,
    )
    residual[problem.is_fixed] = unknowns[problem.is_fixed] - problem.start[problem.is_fixed]
    _set_identity_rows(problem.is_fixed, space.indptr, space.indices, values)
    return values, residual


def _force_at_points(
    problem: FlowProblem, space: TaylorHoodSpace
) -> Float[np.ndarray, "element point 2"]:
    """Return the body force at the quadrature points of every element."""
    basis = reference_element().velocity
    points = np.einsum("pa,ead->epd", basis, problem.nodes.reshape(-1, 2)[space.element_nodes])
    if problem.body_force is None:
        return np.zeros_like(points)
    return problem.body_force(points)


# The test run wraps annotated functions to check shapes, and numba cannot compile the wrapper:
# kernels carry `no_type_check`, and the typed functions above are checked instead.
@njit(cache=True)
@no_type_check
def _add_elements(
    nodes,
    element_nodes,
    element_unknowns,
    entries,
    weights,
    basis,
    reference_gradient,
    pressure_basis,
    viscosity,
    force,
    unknowns,
    values,
    residual,
):
    """Add the integrals over all elements to the matrix values and to the residual."""
    local_residual = np.empty(N_LOCAL)
    local_matrix = np.empty((N_LOCAL, N_LOCAL))
    gradient = np.empty((N_VELOCITY, 2))
    for element in range(element_nodes.shape[0]):
        local_residual[:] = 0.0
        local_matrix[:] = 0.0
        local_unknowns = unknowns[element_unknowns[element]]
        corners = nodes[element_nodes[element]]
        for point in range(weights.size):
            volume = weights[point] * _physical_gradient(
                corners, reference_gradient[point], gradient
            )
            _add_point(
                volume,
                viscosity,
                basis[point],
                gradient,
                pressure_basis[point],
                force[element, point],
                local_unknowns,
                local_residual,
                local_matrix,
            )
        for row in range(N_LOCAL):
            residual[element_unknowns[element, row]] += local_residual[row]
            for column in range(N_LOCAL):
                values[entries[element, row, column]] += local_matrix[row, column]


@njit(cache=True)
@no_type_check
def _physical_gradient(corners, reference_gradient, gradient):
    """Fill in the gradient of the velocity basis; return the determinant of the mapping."""
    x_s = x_t = y_s = y_t = 0.0
    for a in range(N_VELOCITY):
        x_s += corners[a, 0] * reference_gradient[a, 0]
        x_t += corners[a, 0] * reference_gradient[a, 1]
        y_s += corners[a, 1] * reference_gradient[a, 0]
        y_t += corners[a, 1] * reference_gradient[a, 1]
    determinant = x_s * y_t - x_t * y_s
    for a in range(N_VELOCITY):
        along_s, along_t = reference_gradient[a, 0], reference_gradient[a, 1]
        gradient[a, 0] = (y_t * along_s - y_s * along_t) / determinant
        gradient[a, 1] = (x_s * along_t - x_t * along_s) / determinant
    return determinant


@njit(cache=True)
@no_type_check
def _add_point(
    volume, viscosity, basis, gradient, pressure_basis, force, unknowns, residual, matrix
):
    """Add one quadrature point to the local residual and to its derivative."""
    u = v = u_x = u_y = v_x = v_y = p = 0.0
    for a in range(N_VELOCITY):
        u += basis[a] * unknowns[a]
        v += basis[a] * unknowns[N_VELOCITY + a]
        u_x += gradient[a, 0] * unknowns[a]
        u_y += gradient[a, 1] * unknowns[a]
        v_x += gradient[a, 0] * unknowns[N_VELOCITY + a]
        v_y += gradient[a, 1] * unknowns[N_VELOCITY + a]
    for a in range(N_PRESSURE):
        p += pressure_basis[a] * unknowns[2 * N_VELOCITY + a]

    convection_x = u * u_x + v * u_y - force[0]
    convection_y = u * v_x + v * v_y - force[1]
    for a in range(N_VELOCITY):
        test = volume * basis[a]
        test_x, test_y = volume * gradient[a, 0], volume * gradient[a, 1]
        stress_x = viscosity * (test_x * u_x + test_y * u_y) - p * test_x
        stress_y = viscosity * (test_x * v_x + test_y * v_y) - p * test_y
        residual[a] += test * convection_x + stress_x
        residual[N_VELOCITY + a] += test * convection_y + stress_y
        for b in range(N_VELOCITY):
            transport = u * gradient[b, 0] + v * gradient[b, 1]
            diffusion = viscosity * (test_x * gradient[b, 0] + test_y * gradient[b, 1])
            both = test * transport + diffusion
            matrix[a, b] += both + test * basis[b] * u_x
            matrix[a, N_VELOCITY + b] += test * basis[b] * u_y
            matrix[N_VELOCITY + a, b] += test * basis[b] * v_x
            matrix[N_VELOCITY + a, N_VELOCITY + b] += both + test * basis[b] * v_y
        for b in range(N_PRESSURE):
            c = 2 * N_VELOCITY + b
            # The same entries twice: minus the divergence tested by pressures is the transpose.
            matrix[a, c] -= test_x * pressure_basis[b]
            matrix[N_VELOCITY + a, c] -= test_y * pressure_basis[b]
            matrix[c, a] -= test_x * pressure_basis[b]
            matrix[c, N_VELOCITY + a] -= test_y * pressure_basis[b]
    for b in range(N_PRESSURE):
        residual[2 * N_VELOCITY + b] -= volume * pressure_basis[b] * (u_x + v_y)


@njit(cache=True)
@no_type_check
def _set_identity_rows(is_fixed, indptr, indices, values):
    """Replace the rows of fixed unknowns by the identity."""
    for row in range(is_fixed.size):
        if is_fixed[row]:
            for entry in range(indptr[row], indptr[row + 1]):
                values[entry] = 1.0 if indices[entry] == row else 0.0
