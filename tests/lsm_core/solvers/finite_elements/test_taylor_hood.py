import numpy as np
import pytest

from lsm_core.solvers.finite_elements.taylor_hood import reference_element, taylor_hood_space


def test_neighbouring_elements_share_their_nodes():
    space = taylor_hood_space((5, 3))
    assert space.element_nodes.tolist() == [list(range(9)), list(range(6, 15))]
    # Two velocities at 15 nodes come before the pressures, of which there are 3 x 2.
    assert space.element_unknowns[1, -4:].tolist() == [32, 33, 34, 35]
    assert space.n_unknowns == 36


def test_every_product_of_unknowns_has_its_place_in_the_matrix():
    space = taylor_hood_space((7, 5))
    matrix = space.matrix(np.arange(1.0, space.indices.size + 1))
    element = space.element_unknowns[3]
    placed = matrix[element][:, element].toarray()
    np.testing.assert_array_equal(placed, space.entries[3] + 1.0)


def test_splitting_undoes_joining():
    space = taylor_hood_space((5, 3))
    fields = [np.random.default_rng(0).normal(size=shape) for shape in ((5, 3), (5, 3), (3, 2))]
    for original, returned in zip(fields, space.split(space.join(*fields)), strict=True):
        np.testing.assert_array_equal(original, returned)


def test_an_even_number_of_nodes_is_refused():
    with pytest.raises(ValueError, match="odd"):
        taylor_hood_space((5, 4))


@pytest.mark.parametrize("n_gauss", [2, 3, 4])
def test_the_basis_reproduces_constants_and_the_area(n_gauss):
    reference = reference_element(n_gauss)
    np.testing.assert_allclose(reference.velocity.sum(axis=1), 1, atol=1e-15)
    np.testing.assert_allclose(reference.pressure.sum(axis=1), 1, atol=1e-15)
    np.testing.assert_allclose(reference.velocity_gradient.sum(axis=1), 0, atol=1e-14)
    assert reference.weights.sum() == pytest.approx(4, abs=1e-14)


def test_the_gradient_of_a_quadratic_is_exact():
    s, t = (axis.ravel() for axis in np.meshgrid([-1, 0, 1], [-1, 0, 1], indexing="ij"))
    reference = reference_element(3)
    points_s, points_t = reference.velocity @ s, reference.velocity @ t
    gradient = np.einsum("pad,a->pd", reference.velocity_gradient, s**2 + 3 * s * t)
    np.testing.assert_allclose(gradient[:, 0], 2 * points_s + 3 * points_t, atol=1e-14)
    np.testing.assert_allclose(gradient[:, 1], 3 * points_s, atol=1e-14)
