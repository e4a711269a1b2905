import numpy as np
import pytest

from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_elements import incompressible_flow
from lsm_core.solvers.finite_elements.incompressible_flow import (
    Flow,
    FlowProblem,
    assemble_flow,
    solve_flow,
)
from lsm_core.solvers.finite_elements.sparse_direct import SuperLu
from lsm_core.solvers.finite_elements.taylor_hood import reference_element, taylor_hood_space

VISCOSITY = 0.05
PI = np.pi


def bent_square(n_elements: int) -> np.ndarray:
    """Return the nodes of a unit square that is sheared and stretched along both axes."""
    s, t = np.meshgrid(*2 * [np.linspace(0, 1, 2 * n_elements + 1)], indexing="ij")
    return np.stack([s + 0.1 * np.sin(2 * t) * s, t + 0.2 * np.sin(2 * PI * s) + 0.1 * s * t], -1)


def manufactured(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a velocity without divergence and a pressure."""
    x, y = PI * points[..., 0], PI * points[..., 1]
    return np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y), np.sin(2 * x) * np.cos(y)


def manufactured_force(points: np.ndarray) -> np.ndarray:
    """Return the body force under which the manufactured flow is steady."""
    x, y = PI * points[..., 0], PI * points[..., 1]
    velocity_x, velocity_y, _ = manufactured(points)
    force_x = PI * np.sin(x) * np.cos(x) + 2 * PI * np.cos(2 * x) * np.cos(y)
    force_y = PI * np.sin(y) * np.cos(y) - PI * np.sin(2 * x) * np.sin(y)
    diffusion = 2 * PI**2 * VISCOSITY
    return np.stack([force_x + diffusion * velocity_x, force_y + diffusion * velocity_y], -1)


def manufactured_problem(n_elements: int) -> FlowProblem:
    """Return a problem with the velocity given on the whole boundary, the pressure in a corner."""
    nodes = bent_square(n_elements)
    space = taylor_hood_space(nodes.shape[:2])
    velocity_x, velocity_y, pressure = manufactured(nodes)
    inside = np.zeros(space.n_nodes, dtype=bool)
    inside[1:-1, 1:-1] = True
    free_pressure = np.ones(space.n_pressure_nodes, dtype=bool)
    free_pressure[0, 0] = False
    is_free = np.concatenate([inside.ravel(), inside.ravel(), free_pressure.ravel()])
    exact = space.join(velocity_x, velocity_y, pressure[::2, ::2])
    return FlowProblem(
        nodes=nodes,
        viscosity=VISCOSITY,
        is_fixed=~is_free,
        start=np.where(is_free, 0.0, exact),
        body_force=manufactured_force,
    )


def l2_errors(problem: FlowProblem, flow: Flow) -> tuple[float, float]:
    """Return the L2 errors of velocity and pressure, by a finer quadrature than the solver's."""
    space, reference = taylor_hood_space(problem.nodes.shape[:2]), reference_element(5)
    corners = problem.nodes.reshape(-1, 2)[space.element_nodes]
    jacobian = np.einsum("pas,ead->epds", reference.velocity_gradient, corners)
    volumes = reference.weights * np.linalg.det(jacobian)
    points = np.einsum("pa,ead->epd", reference.velocity, corners)
    exact_x, exact_y, exact_pressure = manufactured(points)

    unknowns = space.join(flow.velocity_x, flow.velocity_y, flow.pressure)[space.element_unknowns]
    velocity_x = unknowns[:, :9] @ reference.velocity.T
    velocity_y = unknowns[:, 9:18] @ reference.velocity.T
    pressure = unknowns[:, 18:] @ reference.pressure.T

    velocity_error = (velocity_x - exact_x) ** 2 + (velocity_y - exact_y) ** 2
    pressure_error = pressure - exact_pressure
    pressure_error -= np.sum(volumes * pressure_error) / np.sum(volumes)
    return (
        float(np.sqrt(np.sum(volumes * velocity_error))),
        float(np.sqrt(np.sum(volumes * pressure_error**2))),
    )


def straight_pipe(n_elements: int) -> tuple[FlowProblem, tuple[np.ndarray, ...]]:
    """Return a pipe with nothing known inside it, and the Poiseuille flow it must find."""
    n_nodes = 2 * n_elements + 1
    space = taylor_hood_space((n_nodes, n_nodes))
    x, y = np.meshgrid(np.linspace(0, 10, n_nodes), np.linspace(-0.5, 0.5, n_nodes), indexing="ij")
    exact = (1 - 4 * y**2, np.zeros_like(y), 8 * VISCOSITY * (10 - x[::2, ::2]))
    is_given = np.zeros(space.n_nodes, dtype=bool)
    is_given[0] = is_given[:, 0] = is_given[:, -1] = True
    no_pressure = np.zeros(space.n_pressure_nodes, dtype=bool)
    is_fixed = np.concatenate([is_given.ravel(), is_given.ravel(), no_pressure.ravel()])
    problem = FlowProblem(
        nodes=np.stack([x, y], -1),
        viscosity=VISCOSITY,
        is_fixed=is_fixed,
        start=np.where(is_fixed, space.join(*exact), 0.0),
    )
    return problem, exact


def test_poiseuille_flow_in_a_straight_pipe_is_exact():
    problem, (velocity_x, velocity_y, pressure) = straight_pipe(n_elements=8)
    flow = solve_flow(problem, tolerance=1e-12)
    assert flow.residuals.size > 2  # it was not given the answer
    np.testing.assert_allclose(flow.velocity_x, velocity_x, atol=1e-10)
    np.testing.assert_allclose(flow.velocity_y, velocity_y, atol=1e-10)
    np.testing.assert_allclose(flow.pressure, pressure, atol=1e-10)


def test_velocity_is_of_third_and_pressure_of_second_order_on_a_bent_domain():
    errors = []
    for n_elements in (8, 16, 32):
        problem = manufactured_problem(n_elements)
        errors.append(l2_errors(problem, solve_flow(problem)))
    velocity_orders, pressure_orders = -np.diff(np.log2(np.array(errors)), axis=0).T
    assert np.all(velocity_orders >= 2.8), velocity_orders
    assert pressure_orders[-1] == pytest.approx(2, abs=0.15)


def test_the_jacobian_is_the_derivative_of_the_residual():
    problem = manufactured_problem(n_elements=2)
    space = taylor_hood_space(problem.nodes.shape[:2])
    force = np.zeros((4, 9, 2))
    random = np.random.default_rng(0)
    unknowns, direction = random.normal(size=(2, space.n_unknowns))
    values, _ = assemble_flow(problem, space, force, unknowns)
    _, ahead = assemble_flow(problem, space, force, unknowns + 1e-6 * direction)
    _, behind = assemble_flow(problem, space, force, unknowns - 1e-6 * direction)
    expected = (ahead - behind) / 2e-6
    np.testing.assert_allclose(space.matrix(values) @ direction, expected, atol=1e-8)


def test_newton_converges_quadratically():
    residuals = solve_flow(manufactured_problem(n_elements=8), tolerance=1e-11).residuals
    last = np.log(residuals[-3:])
    assert last[2] - last[1] < 1.6 * (last[1] - last[0])


def test_the_flow_does_not_depend_on_the_linear_solver(monkeypatch):
    problem = manufactured_problem(n_elements=4)
    flow = solve_flow(problem)
    monkeypatch.setattr(incompressible_flow, "direct_solver", SuperLu)
    np.testing.assert_allclose(solve_flow(problem).velocity_x, flow.velocity_x, atol=1e-11)


def test_too_few_iterations_are_an_error_with_the_residual_reached():
    with pytest.raises(SolveFailed, match="Newton") as failure:
        solve_flow(manufactured_problem(n_elements=4), max_iterations=1)
    assert failure.value.iterations == 1
    assert failure.value.tolerance < failure.value.residual < 1
