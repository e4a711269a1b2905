import numpy as np
import pytest

from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_volumes.airfoil_mesh import AirfoilMeshSize, airfoil_mesh
from lsm_core.solvers.finite_volumes.c_mesh import CMesh, c_mesh
from lsm_core.solvers.finite_volumes.euler import (
    EulerBalance,
    EulerScheme,
    FreeStream,
    lift_and_drag,
    mach_number,
    node_states,
    solve_euler,
)
from lsm_core.solvers.finite_volumes.euler_fluxes import limited_slope, roe_flux

HEAT_RATIO = 1.4
COARSE = AirfoilMeshSize(n_wake=16, n_surface=40, n_normal=16)


def mesh_around(size: AirfoilMeshSize, thickness: float = 0.12, bend: float = 0.0) -> CMesh:
    displacements = bend * np.array([0, 1, -1, 0.5, 1, 0.5, 1, -1])
    return c_mesh(airfoil_mesh(size, displacements, thickness), size.n_wake)


def balance_on(mesh: CMesh, stream: FreeStream) -> EulerBalance:
    return EulerBalance(mesh=mesh, stream=stream, limiter_threshold=1e-3)


def flux_between(left: list[float], right: list[float], normal: tuple[float, float]) -> np.ndarray:
    flux = np.empty(4)
    roe_flux(np.array(left), np.array(right), *normal, HEAT_RATIO, flux)
    return flux


def exact_flux(state: list[float], normal: tuple[float, float]) -> np.ndarray:
    density, u, v, pressure = state
    through = u * normal[0] + v * normal[1]
    enthalpy = HEAT_RATIO / (HEAT_RATIO - 1) * pressure + 0.5 * density * (u * u + v * v)
    momentum_x = density * u * through + pressure * normal[0]
    momentum_y = density * v * through + pressure * normal[1]
    return np.array([density * through, momentum_x, momentum_y, enthalpy * through])


def test_the_flux_between_equal_states_is_the_flux_of_the_state():
    state, normal = [1.2, 0.7, -0.3, 0.9], (0.6, -1.1)
    np.testing.assert_allclose(flux_between(state, state, normal), exact_flux(state, normal))


def test_what_leaves_one_cell_enters_the_other():
    left, right, normal = [1.2, 0.7, -0.3, 0.9], [0.8, 0.2, 0.5, 1.4], (0.6, -1.1)
    there = flux_between(left, right, normal)
    back = flux_between(right, left, (-normal[0], -normal[1]))
    np.testing.assert_allclose(there, -back, rtol=1e-13)


def test_supersonic_gas_hears_nothing_from_downstream():
    fast, other, normal = [1.0, 3.0, 0.2, 1.0], [0.9, 2.8, 0.1, 1.1], (1.0, 0.0)
    np.testing.assert_allclose(
        flux_between(fast, other, normal), exact_flux(fast, normal), rtol=1e-13
    )


def test_a_slope_is_kept_where_smooth_and_cut_at_an_extremum():
    assert limited_slope(0.3, 0.3, 1e-3) == pytest.approx(0.3)
    assert abs(limited_slope(0.3, -0.3, 1e-3)) < 1e-15
    assert limited_slope(0.3, 0.003, 0.0) < 0.007
    # Far below the threshold it is the plain mean.
    assert limited_slope(1e-4, 3e-4, 1e-3) == pytest.approx(2e-4, rel=1e-3)


def test_the_free_stream_along_a_flat_plate_is_preserved():
    mesh = mesh_around(AirfoilMeshSize(), thickness=0.0)
    balance = balance_on(mesh, FreeStream())
    assert np.max(np.abs(balance.residual(balance.free_stream()))) < 1e-12
    flow = solve_euler(mesh, FreeStream(), EulerScheme())
    np.testing.assert_array_equal(flow.states, balance.free_stream())


def test_an_inclined_free_stream_is_preserved_off_the_wall():
    mesh = mesh_around(AirfoilMeshSize(), bend=0.05)
    balance = balance_on(mesh, FreeStream(mach=1.3, angle_of_attack=7.0))
    residual = np.abs(balance.residual(balance.free_stream()))
    assert residual[mesh.wall, 0].max() > 1e-3  # the wall does turn the flow
    residual[mesh.wall, :2] = 0
    assert residual.max() < 1e-12


def steady_vortex(mesh: CMesh) -> np.ndarray:
    """Return cell states, ghosts included, of a vortex whose pressure balances its spin."""
    corners = mesh.nodes
    x, y = np.moveaxis((corners[1:, 1:] + corners[:-1, :-1]) / 2, -1, 0)
    decay = np.exp((1 - x**2 - y**2) / 2)
    temperature = 1 - (HEAT_RATIO - 1) / (2 * HEAT_RATIO) * (0.5 * decay) ** 2
    density = temperature ** (1 / (HEAT_RATIO - 1))
    states = np.stack([density, -0.5 * y * decay, 0.5 * x * decay, density * temperature], -1)
    return np.pad(states, ((2, 2), (2, 2), (0, 0)))


def test_the_balance_of_a_smooth_steady_flow_is_of_second_order():
    errors = []
    for n_cells in (64, 128, 256):
        line = np.linspace(-4, 4, n_cells + 1)
        nodes = np.stack(np.meshgrid(line, line, indexing="ij"), -1)
        mesh = c_mesh(nodes, n_wake=n_cells // 2)
        balance = EulerBalance(mesh=mesh, stream=FreeStream(mach=0.0), limiter_threshold=1.0)
        rate = balance.residual(steady_vortex(mesh)) / mesh.volumes[..., None]
        errors.append(np.sqrt(np.mean(rate[4:-4, 4:-4] ** 2)))
    orders = -np.diff(np.log2(errors))
    assert orders[0] > 2
    assert orders[1] == pytest.approx(2, abs=0.15)


def test_the_derivative_is_that_of_the_residual():
    mesh = mesh_around(COARSE, bend=0.05)
    balance = balance_on(mesh, FreeStream())
    random = np.random.default_rng(0)
    states = balance.free_stream()
    states[2:-2, 2:-2] += 0.05 * random.normal(size=(*mesh.n_cells, 4))
    change = random.normal(size=(*mesh.n_cells, 4))
    step = 1e-6
    ahead, behind = states.copy(), states.copy()
    ahead[2:-2, 2:-2] += step * change
    behind[2:-2, 2:-2] -= step * change
    expected = (balance.residual(ahead) - balance.residual(behind)) / (2 * step)
    balance.residual(states)  # fills the ghost layers
    product = balance.derivative(states, courant=np.inf).multiply(change.ravel())
    scale = np.abs(expected).max(axis=-1, keepdims=True) + 1e-3
    assert np.max(np.abs(product.reshape(expected.shape) - expected) / scale) < 1e-4


def test_the_approximate_inverse_is_good_for_short_time_steps():
    balance = balance_on(mesh_around(COARSE), FreeStream())
    states = balance.free_stream()
    change = np.random.default_rng(0).normal(size=balance.residual(states).size)
    errors = []
    for courant in (0.1, 0.01):
        derivative = balance.derivative(states, courant)
        returned = derivative.precondition(derivative.multiply(change))
        errors.append(np.linalg.norm(returned - change) / np.linalg.norm(change))
    assert errors[1] < 0.01
    assert errors[1] < errors[0] / 5


def test_the_flow_around_a_symmetric_airfoil_is_symmetric_and_has_drag_but_no_lift():
    mesh, stream = mesh_around(COARSE), FreeStream()
    flow = solve_euler(mesh, stream, EulerScheme(tolerance=1e-9))
    mach = mach_number(node_states(mesh, flow.states), HEAT_RATIO)
    np.testing.assert_allclose(mach, mach[::-1], atol=1e-6)
    lift, drag = lift_and_drag(mesh, stream, flow.states)
    assert abs(lift) < 1e-6
    assert 0.005 < drag < 0.06
    assert mach.max() > 1.1


def test_an_airfoil_at_an_angle_lifts():
    mesh, stream = mesh_around(COARSE), FreeStream(mach=0.5, angle_of_attack=2.0)
    lift, _ = lift_and_drag(mesh, stream, solve_euler(mesh, stream, EulerScheme()).states)
    # Thin airfoil theory with the Prandtl-Glauert rule: 2 pi sin(2 degrees) / sqrt(1 - 0.25)
    assert lift == pytest.approx(0.253, rel=0.2)


def test_the_start_does_not_matter():
    stream, scheme = FreeStream(), EulerScheme(tolerance=1e-8)
    straight = solve_euler(mesh_around(COARSE), stream, scheme)
    bent = mesh_around(COARSE, bend=0.03)
    cold = solve_euler(bent, stream, scheme)
    warm = solve_euler(bent, stream, scheme, start=straight.states)
    np.testing.assert_allclose(warm.states, cold.states, atol=1e-5)


def test_both_sides_of_the_wake_and_the_trailing_edge_agree_at_nodes():
    mesh = mesh_around(COARSE, bend=0.03)
    nodes = node_states(mesh, solve_euler(mesh, FreeStream(), EulerScheme()).states)
    np.testing.assert_allclose(nodes[:17, 0], nodes[:55:-1, 0], rtol=1e-12)


def test_too_few_iterations_are_an_error_with_the_residual_reached():
    with pytest.raises(SolveFailed, match="Euler") as failure:
        solve_euler(mesh_around(COARSE), FreeStream(), EulerScheme(max_iterations=3))
    assert failure.value.iterations == 3
    assert 1e-6 < failure.value.residual < 1


def test_a_start_that_is_not_a_number_is_an_error_not_an_answer():
    mesh = mesh_around(COARSE)
    start = balance_on(mesh, FreeStream()).free_stream()
    start[30, 8] = np.nan
    with pytest.raises(SolveFailed, match="nan"):
        solve_euler(mesh, FreeStream(), EulerScheme(), start)
