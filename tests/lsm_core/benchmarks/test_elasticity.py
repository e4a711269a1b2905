import numpy as np
import pytest

import lsm_core.benchmarks.unit_cell
from lsm_core.benchmarks.elasticity_grid import ElasticityGrid, interpolate_stress
from lsm_core.benchmarks.elasticity_points import ElasticityPoints
from lsm_core.benchmarks.unit_cell import StressedCell
from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_elements.void_mesh import CENTRE, round_void

COARSE = {"n_around": 12, "n_outward": 2, "n_modes": 4}
BENCHMARKS = [ElasticityPoints(**COARSE), ElasticityGrid(**COARSE, n_nodes=21)]


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_samples_are_what_the_variables_say(benchmark):
    sample = benchmark.generate(0)
    assert set(sample) == {variable.name for variable in benchmark.variables}
    for variable in benchmark.variables:
        assert sample[variable.name].shape == variable.shape
        assert sample[variable.name].dtype == np.float32
        if variable.role in {"input", "target"}:
            assert np.isfinite(sample[variable.name]).all()


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_a_sample_depends_on_its_seed_alone(benchmark):
    first, again, other = benchmark.generate(3), benchmark.generate(3), benchmark.generate(4)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert not np.array_equal(first["stress"], other["stress"])


def test_the_default_sizes_are_those_of_the_published_data():
    points, grid = ElasticityPoints(), ElasticityGrid()
    assert points.shape.space == (972,)
    # Two coordinates a point, and the 42 radii of the void, the same at every point.
    assert (points.shape.n_inputs, points.shape.n_outputs) == (2 + 42, 1)
    assert grid.shape.space == (41, 41)
    assert (grid.shape.n_inputs, grid.shape.n_outputs) == (1, 1)


def test_the_points_lie_in_the_cell_outside_the_void():
    sample = BENCHMARKS[0].generate(1)
    offset = sample["points"] - CENTRE
    angles = np.arctan2(offset[:, 1], offset[:, 0]) % (2 * np.pi)
    stored_angles = BENCHMARKS[0].coordinates["angle"]
    edge = np.interp(angles, stored_angles, sample["radii"])
    # The radii are known at 42 angles only, so the edge between them is not sharp.
    assert (np.hypot(*offset.T) > edge - 0.01).all()
    assert abs(offset).max() < 0.5
    assert sample["radii"][0] == sample["radii"][-1]


def test_the_stress_is_positive_and_proportional_to_so_small_a_load():
    single = ElasticityPoints(**COARSE).generate(0)["stress"]
    double = ElasticityPoints(**COARSE, traction=200.0).generate(0)["stress"]
    assert single.min() > 0
    np.testing.assert_allclose(double, 2 * single, rtol=0.01)
    assert abs(double - 2 * single).max() > 1e-4  # the material is not linear


def test_both_elasticity_benchmarks_show_the_same_cell():
    points, grid = (benchmark.generate(7) for benchmark in BENCHMARKS)
    along = BENCHMARKS[1].coordinates["x"]
    nodes = np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1)
    cell = StressedCell(
        void=round_void(0.3),
        points=points["points"].astype(np.float64),
        stress=points["stress"].astype(np.float64),
        residuals=np.zeros(1),
    )
    expected = grid["mask"] * interpolate_stress(cell, nodes)
    np.testing.assert_allclose(grid["stress"], expected, rtol=1e-4, atol=1e-2)
    np.testing.assert_array_equal(points["residuals"], grid["residuals"])


def test_interpolation_keeps_a_linear_stress_and_extends_it_by_the_nearest_point():
    generator = np.random.default_rng(0)
    corners = np.array([[0.1, 0.1], [0.1, 0.9], [0.9, 0.1], [0.9, 0.9]])
    points = np.concatenate([corners, generator.uniform(0.1, 0.9, (40, 2))])
    cell = StressedCell(
        void=round_void(0.3), points=points, stress=points @ [2.0, 3.0], residuals=np.zeros(1)
    )
    inside = generator.uniform(0.15, 0.85, (5, 5, 2))
    np.testing.assert_allclose(interpolate_stress(cell, inside), inside @ [2.0, 3.0])
    np.testing.assert_allclose(interpolate_stress(cell, np.array([[1.0, 1.0]])), [4.5])


def test_the_mask_is_zero_in_the_void_and_hides_the_stress_there():
    sample = BENCHMARKS[1].generate(2)
    assert set(np.unique(sample["mask"])) == {0, 1}
    assert sample["mask"][10, 10] == 0
    assert sample["mask"][0].all()
    assert not sample["stress"][sample["mask"] == 0].any()


def test_newtons_residuals_end_below_the_tolerance():
    sample = BENCHMARKS[0].generate(0)
    n_iterations = int(sample["n_iterations"])
    assert sample["residuals"][0] == pytest.approx(1)
    assert sample["residuals"][n_iterations] < 1e-10
    assert np.isnan(sample["residuals"][n_iterations + 1 :]).all()


def test_a_cell_that_cannot_carry_its_load_is_reported():
    with pytest.raises(SolveFailed):
        ElasticityPoints(**COARSE, traction=-1e8).generate(0)


def test_a_mesh_with_folded_elements_is_no_sample(monkeypatch):
    monkeypatch.setattr(
        lsm_core.benchmarks.unit_cell,
        "folded_elements",
        lambda mesh: np.arange(len(mesh.elements)) == 0,
    )
    with pytest.raises(SolveFailed, match="folded elements"):
        ElasticityPoints(**COARSE).generate(0)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"n_around": 10}, "n_around must be a multiple of 4"),
        ({"n_outward": 0}, "n_outward must be at least 1"),
        ({"first_modulus": 0.0}, "moduli must be positive"),
    ],
)
def test_impossible_parameters_are_refused(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        ElasticityPoints(**parameters)


@pytest.mark.slow
def test_a_hundred_seeds_of_a_hundred_converge():
    benchmark = ElasticityPoints()
    for seed in range(100):
        sample = benchmark.generate(seed)
        assert sample["stress"].min() > 0
        assert sample["n_iterations"] <= 4
