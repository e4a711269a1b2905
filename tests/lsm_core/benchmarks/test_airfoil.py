from dataclasses import replace

import numpy as np
import pytest
from scipy.interpolate import LinearNDInterpolator

from lsm_core.benchmarks.airfoil import Airfoil, undeformed_flow
from lsm_core.problems.sample import Sample
from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_volumes.euler import lift_and_drag, mach_number, node_states

COARSE = Airfoil(n_wake=10, n_surface=32, n_normal=12)


def straight_surface(benchmark: Airfoil) -> tuple[np.ndarray, np.ndarray, float]:
    """Return position and Mach number along the upper side of the unbent airfoil, and the lift."""
    mesh, flow = benchmark.mesh(np.zeros(8)), undeformed_flow(benchmark)
    mach = mach_number(node_states(mesh, flow.states), 1.4)
    upper = slice(benchmark.n_wake + benchmark.n_surface // 2, benchmark.n_wake, -1)
    lift, _ = lift_and_drag(mesh, benchmark.stream, flow.states)
    return mesh.nodes[upper, 0, 0], mach[upper, 0], lift


def shock_position(x: np.ndarray, mach: np.ndarray) -> float:
    """Return the middle of the steepest fall of the Mach number."""
    steepest = np.argmin(np.diff(mach))
    return float(x[steepest] + x[steepest + 1]) / 2


def test_a_sample_holds_the_variables_as_declared():
    sample = COARSE.generate(3)
    assert list(sample) == [variable.name for variable in COARSE.variables]
    for variable in COARSE.variables:
        assert sample[variable.name].shape == variable.shape
        assert sample[variable.name].dtype == np.float32
    assert COARSE.shape.space == (53, 13)
    assert (COARSE.shape.n_inputs, COARSE.shape.n_outputs) == (2, 1)
    assert Airfoil().shape.space == (221, 51)


def test_a_seed_names_one_airfoil_whichever_comes_first():
    first = COARSE.generate(5)
    undeformed_flow.cache_clear()
    COARSE.generate(6)
    again = COARSE.generate(5)
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])
    assert not np.array_equal(first["mesh_y"], COARSE.generate(6)["mesh_y"])


def test_the_mach_number_follows_from_the_stored_flow():
    sample = COARSE.generate(1)
    sound = np.sqrt(1.4 * sample["pressure"] / sample["density"])
    mach = np.hypot(sample["velocity_x"], sample["velocity_y"]) / sound
    np.testing.assert_allclose(sample["mach"], mach, rtol=1e-5)
    assert 1.05 < mach.max() < 1.8
    assert mach.min() < 0.5  # the gas is stopped at the nose


def test_the_gas_is_undisturbed_far_away():
    sample = COARSE.generate(1)
    np.testing.assert_allclose(sample["mach"][10:43, -1], 0.8, atol=0.01)


def test_the_first_control_is_held_and_the_others_stay_in_range():
    displacements = np.array([COARSE.draw_displacements(seed) for seed in range(50)])
    assert not displacements[:, 0].any()
    assert np.all(np.abs(displacements) <= 0.05)
    assert displacements[:, 1:].std() == pytest.approx(0.05 / np.sqrt(3), rel=0.1)


def test_the_residuals_end_at_the_tolerance_and_are_padded():
    sample = COARSE.generate(2)
    n_iterations = int(sample["n_iterations"])
    residuals = sample["residuals"]
    assert residuals[n_iterations] <= COARSE.tolerance < residuals[n_iterations - 1]
    assert residuals[n_iterations] < 1e-3 * residuals[0]
    assert np.isnan(residuals[n_iterations + 1 :]).all()


def test_an_airfoil_that_does_not_converge_is_an_error():
    with pytest.raises(SolveFailed):
        replace(COARSE, max_iterations=3).generate(0)


@pytest.mark.parametrize("wrong", [{"n_surface": 41}, {"displacement_range": 0.2}])
def test_impossible_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Airfoil(**wrong)


def test_the_shock_on_the_unbent_airfoil_stands_at_half_chord():
    x, mach, lift = straight_surface(Airfoil(n_wake=25, n_surface=60, n_normal=25))
    assert 0.46 < shock_position(x, mach) < 0.56  # cells are 0.034 long
    assert abs(lift) < 1e-3


@pytest.mark.slow
def test_the_shock_on_the_full_mesh_is_in_place_and_sharp():
    x, mach, lift = straight_surface(Airfoil())
    assert 0.48 < shock_position(x, mach) < 0.54
    assert abs(lift) < 1e-3
    # It takes four nodes at most, and the Mach number only rises ahead of it.
    across = np.flatnonzero((mach[:-1] > 1.1) & (x[:-1] > 0.4))[-1]
    assert mach[across + 4] < 0.8
    ahead = np.diff(mach[: across - 1])
    assert ahead.min() > -0.005


@pytest.mark.slow
def test_thirty_seeds_converge_by_three_orders():
    benchmark = Airfoil()
    for seed in range(30):
        sample = benchmark.generate(seed)
        residuals = sample["residuals"][: int(sample["n_iterations"]) + 1]
        assert residuals[-1] < 1e-3 * residuals[0]


@pytest.mark.slow
def test_finer_meshes_come_closer_to_a_finer_reference():
    def sample(scale: float) -> Sample:
        counts = {"n_wake": 50, "n_surface": 120, "n_normal": 50}
        return Airfoil(**{name: int(scale * n) for name, n in counts.items()}).generate(0)

    reference = sample(2.0)
    points = np.stack([reference["mesh_x"].ravel(), reference["mesh_y"].ravel()], -1)
    interpolate = LinearNDInterpolator(points, reference["mach"].ravel())
    errors = []
    for scale in (0.5, 1.0):
        coarse = sample(scale)
        x, y, mach = coarse["mesh_x"], coarse["mesh_y"], coarse["mach"]
        near = (np.abs(x - 0.5) < 1.5) & (np.abs(y) < 1)
        expected = interpolate(x[near], y[near])
        errors.append(np.linalg.norm(mach[near] - expected) / np.linalg.norm(expected))
    assert errors[1] < 0.7 * errors[0]
    assert errors[1] < 0.05
