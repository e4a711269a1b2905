from dataclasses import replace

import numpy as np
import pytest

from lsm_core.benchmarks import pipe
from lsm_core.benchmarks.pipe import Pipe, between_nodes, hermite_curve
from lsm_core.problems.sample import Sample
from lsm_core.solvers.convergence import SolveFailed

COARSE = Pipe(n_elements=16)


def flux_deviation(sample: Sample, n_sections: int = 10) -> float:
    """Return the largest relative change of the flux over cross-sections on element edges.

    Simpson's rule is exact for the quadratic velocity on a straight vertical edge.
    """
    velocity = sample["velocity_x"].astype(np.float64)
    n_nodes = velocity.shape[0]
    heights = sample["mesh_y"][:, -1].astype(np.float64) - sample["mesh_y"][:, 0]
    weights = np.ones(n_nodes)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    flux = velocity @ weights * heights / (3 * (n_nodes - 1))
    sections = 2 * np.linspace(0, (n_nodes - 1) // 2, n_sections).astype(int)
    return float(np.max(np.abs(flux[sections] / flux[0] - 1)))


def test_a_sample_holds_the_variables_as_declared():
    sample = COARSE.generate(3)
    assert list(sample) == [variable.name for variable in COARSE.variables]
    for variable in COARSE.variables:
        assert sample[variable.name].shape == variable.shape
        assert sample[variable.name].dtype == np.float32
    assert COARSE.shape.space == (33, 33)
    assert (COARSE.shape.n_inputs, COARSE.shape.n_outputs) == (2, 1)


def test_a_seed_names_one_pipe_in_any_order():
    first = COARSE.generate(5)
    COARSE.generate(6)
    again = COARSE.generate(5)
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])
    assert not np.array_equal(first["mesh_y"], COARSE.generate(6)["mesh_y"])


def test_what_a_solver_does_not_repeat_is_not_in_a_sample():
    assert pipe._rounded(1.3303713768911696e-14) == pipe._rounded(1.3308193726169724e-14)
    assert pipe._rounded(2.5724442e-08) == 2.57e-08


def test_fluid_enters_with_a_parabola_and_sticks_to_the_walls():
    sample = COARSE.generate(0)
    across = np.linspace(0, 1, 33)
    np.testing.assert_allclose(sample["velocity_x"][0], across * (1 - across), atol=1e-7)
    assert not sample["velocity_y"][0].any()
    for name in ("velocity_x", "velocity_y"):
        assert not sample[name][:, 0].any()
        assert not sample[name][:, -1].any()


def test_the_mesh_is_the_pipe_of_the_stored_centreline():
    sample = COARSE.generate(2)
    controls = sample["centreline"]
    assert controls[0] == 0
    assert np.all(np.abs(controls) <= 1)
    knots = sample["mesh_y"][::8]
    np.testing.assert_allclose(knots, controls[::2, None] + np.linspace(-0.5, 0.5, 33), atol=1e-6)
    np.testing.assert_allclose(sample["mesh_x"][:, 7], np.linspace(0, 10, 33), atol=1e-6)


def test_less_fluid_is_lost_on_finer_meshes():
    coarse, fine = (flux_deviation(Pipe(n_elements=n).generate(0)) for n in (20, 40))
    assert fine < 0.005
    assert fine < coarse / 8  # the third order of the velocity


def test_the_residuals_end_at_the_tolerance_and_are_padded():
    sample = COARSE.generate(1)
    n_iterations = int(sample["n_iterations"])
    residuals = sample["residuals"]
    assert residuals[n_iterations] <= COARSE.tolerance < residuals[n_iterations - 1]
    assert np.isnan(residuals[n_iterations + 1 :]).all()


def test_a_pipe_that_does_not_converge_is_an_error():
    with pytest.raises(SolveFailed):
        replace(COARSE, max_iterations=1).generate(0)


def test_the_centreline_has_the_slopes_of_its_controls():
    controls = np.array([0.0, 1.0, 0.5, -0.5, 0.2, 0.0, -1.0, 0.3, 0.4, 0.8])
    curve, slope = hermite_curve(controls, np.linspace(0, 10, 5), length=10.0)
    np.testing.assert_allclose(curve, controls[::2], atol=1e-15)
    np.testing.assert_allclose(slope, controls[1::2] / 2.5, atol=1e-15)
    step = 1e-6
    ahead, _ = hermite_curve(controls, np.array([3.7 + step]), length=10.0)
    behind, _ = hermite_curve(controls, np.array([3.7 - step]), length=10.0)
    _, slope = hermite_curve(controls, np.array([3.7]), length=10.0)
    np.testing.assert_allclose((ahead - behind) / (2 * step), slope, atol=1e-9)


def test_pressure_between_nodes_is_the_mean_of_its_neighbours():
    field = between_nodes(np.array([[0.0, 4.0], [8.0, 16.0]]))
    assert field.tolist() == [[0, 2, 4], [4, 7, 10], [8, 12, 16]]


@pytest.mark.parametrize("wrong", [{"n_elements": 1}, {"viscosity": 0.0}])
def test_impossible_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Pipe(**wrong)


@pytest.mark.slow
def test_finer_meshes_come_closer_to_a_finer_reference():
    def velocity(n_elements: int) -> np.ndarray:
        stride = n_elements // 16
        return Pipe(n_elements=n_elements).generate(0)["velocity_x"][::stride, ::stride]

    reference = velocity(128)
    errors = [
        np.linalg.norm(velocity(n_elements) - reference) / np.linalg.norm(reference)
        for n_elements in (16, 32, 64)
    ]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 2e-3


@pytest.mark.slow
def test_the_full_mesh_converges_and_keeps_its_flux_on_fifty_seeds():
    deviations = [flux_deviation(Pipe().generate(seed)) for seed in range(50)]
    assert max(deviations) < 0.01
