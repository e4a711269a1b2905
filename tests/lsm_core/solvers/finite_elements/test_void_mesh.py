import numpy as np
import pytest

from lsm_core.solvers.finite_elements.quadratic_quads import (
    folded_elements,
    gauss_points,
    physical_gradients,
)
from lsm_core.solvers.finite_elements.void_mesh import (
    CENTRE,
    Void,
    draw_void,
    mesh_unit_cell,
    round_void,
)


def random_void(seed, n_modes=10):
    generator = np.random.default_rng(seed)
    return draw_void(generator, n_modes=n_modes, smallest_radius=0.2, largest_radius=0.4)


def area(mesh):
    points = gauss_points()
    _, determinants = physical_gradients(mesh, points)
    return float((determinants * points.weights).sum())


def test_the_edge_of_a_void_stays_between_its_radii():
    angles = np.linspace(0, 2 * np.pi, 200)
    radii = np.stack([random_void(seed).radius(angles) for seed in range(50)])
    assert radii.min() > 0.2
    assert radii.max() < 0.4
    # The prior favours neither side of the middle.
    assert radii.mean() == pytest.approx(0.3, abs=0.01)


def test_the_random_function_has_the_covariance_of_the_prior():
    voids = [random_void(seed) for seed in range(2000)]
    cosines = np.std([void.cosines for void in voids], axis=0)
    sines = np.std([void.sines for void in voids], axis=0)
    wavenumbers = np.arange(11)
    # Variance 4^2 / (k^2 + 3^2) in the orthonormal basis of the circle.
    expected = 4 / np.sqrt(wavenumbers**2 + 9) / np.sqrt(np.pi)
    np.testing.assert_allclose(cosines[1:], expected[1:], rtol=0.06)
    np.testing.assert_allclose(sines[1:], expected[1:], rtol=0.06)
    assert cosines[0] == pytest.approx(expected[0] / np.sqrt(2), rel=0.06)


def test_fewer_modes_of_one_seed_are_the_same_void_smoothed():
    np.testing.assert_array_equal(random_void(5, 4).cosines, random_void(5, 10).cosines[:5])
    np.testing.assert_array_equal(random_void(5, 4).sines[1:], random_void(5, 10).sines[1:5])


def test_a_point_is_covered_when_its_ray_has_not_left_the_void():
    void = Void(cosines=np.array([0.0, 2.0]), sines=np.zeros(2))
    right, left = void.radius(np.array([0.0, np.pi]))
    assert right < left
    points = CENTRE + np.array([[right - 1e-6, 0], [right + 1e-6, 0], [-left + 1e-6, 0]])
    np.testing.assert_array_equal(void.covers(points), [True, False, True])


def test_a_void_that_leaves_the_cell_is_refused():
    with pytest.raises(ValueError, match=r"from 0\.2 to 0\.6"):
        Void(cosines=np.zeros(1), sines=np.zeros(1), smallest_radius=0.2, largest_radius=0.6)


def test_the_mesh_fills_the_cell_around_a_round_void():
    # Quadratic edges miss the area of a circle by the fourth power of their length.
    errors = [
        abs(area(mesh_unit_cell(round_void(0.3), n_around=n, n_outward=2)) - 1 + 0.09 * np.pi)
        for n in (16, 32)
    ]
    assert errors[0] < 1e-4
    assert errors[0] / errors[1] == pytest.approx(16, rel=0.15)


def test_the_first_ring_lies_on_the_void_and_the_last_on_the_square():
    void = random_void(1)
    mesh = mesh_unit_cell(void, n_around=36, n_outward=3)
    rings = mesh.nodes.reshape(mesh.n_rings, mesh.n_rays, 2)
    offset = rings[0] - CENTRE
    np.testing.assert_allclose(
        np.linalg.norm(offset, axis=1), void.radius(np.arctan2(offset[:, 1], offset[:, 0]))
    )
    np.testing.assert_allclose(abs(rings[-1] - CENTRE).max(axis=1), 0.5)


def test_the_bottom_and_the_top_are_whole_sides():
    mesh = mesh_unit_cell(random_void(1), n_around=36, n_outward=3)
    np.testing.assert_allclose(mesh.nodes[mesh.bottom, 0], np.linspace(0, 1, 19))
    assert not mesh.nodes[mesh.bottom, 1].any()
    np.testing.assert_allclose(mesh.nodes[mesh.top_edges][..., 1], 1)
    np.testing.assert_allclose(np.unique(mesh.nodes[mesh.top_edges][..., 0]), np.linspace(0, 1, 19))


def test_the_nodes_of_a_coarse_mesh_are_nodes_of_a_finer_one():
    coarse = mesh_unit_cell(random_void(2), n_around=12, n_outward=1)
    fine = mesh_unit_cell(random_void(2), n_around=24, n_outward=2)
    rings = fine.nodes.reshape(fine.n_rings, fine.n_rays, 2)[::2, ::2]
    np.testing.assert_allclose(rings.reshape(-1, 2), coarse.nodes, atol=1e-15)


def test_elements_grow_outward_as_asked():
    mesh = mesh_unit_cell(round_void(0.1), n_around=8, n_outward=3, outward_growth=2.0)
    along_ray = mesh.nodes.reshape(mesh.n_rings, mesh.n_rays, 2)[::2, mesh.n_rays // 8]
    lengths = np.linalg.norm(np.diff(along_ray, axis=0), axis=1)
    np.testing.assert_allclose(lengths[1:] / lengths[:-1], 2)


def test_no_mesh_of_a_hundred_voids_is_folded():
    for seed in range(100):
        mesh = mesh_unit_cell(random_void(seed), n_around=36, n_outward=3)
        assert not folded_elements(mesh).any(), seed


def test_sides_with_unequal_numbers_of_elements_are_refused():
    with pytest.raises(ValueError, match="got 10 around"):
        mesh_unit_cell(round_void(0.3), n_around=10, n_outward=1)
