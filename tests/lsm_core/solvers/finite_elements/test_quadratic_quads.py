import numpy as np
import pytest

from lsm_core.solvers.finite_elements.quadratic_quads import (
    QuadraticMesh,
    edge_loads,
    folded_elements,
    gauss_points,
    node_points,
    physical_gradients,
    physical_positions,
    reference_points,
)

# A curved quadrilateral: the nodes of the reference square, bent and sheared.
SQUARE = np.array([(i, j) for i in (-1.0, 0.0, 1.0) for j in (-1.0, 0.0, 1.0)])
BENT = QuadraticMesh(
    nodes=SQUARE @ np.array([[1.0, 0.2], [0.3, 0.8]]) + 0.05 * SQUARE[:, ::-1] ** 2,
    elements=np.arange(9)[None],
)


def test_every_shape_function_is_one_at_its_own_node_and_zero_at_the_others():
    np.testing.assert_allclose(node_points().values, np.eye(9), atol=1e-15)


def test_gradients_are_the_derivatives_of_the_shape_functions():
    points = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    step = 1e-6
    for axis in range(2):
        shift = step * np.eye(2)[axis]
        difference = (
            reference_points(points + shift).values - reference_points(points - shift).values
        )
        np.testing.assert_allclose(
            reference_points(points).gradients[:, :, axis], difference / (2 * step), atol=1e-9
        )


def test_a_linear_field_has_its_gradient_on_a_curved_element():
    slope = np.array([0.7, -1.3])
    gradients, _ = physical_gradients(BENT, gauss_points())
    values = BENT.nodes @ slope
    np.testing.assert_allclose(
        np.einsum("n,epni->epi", values, gradients), np.broadcast_to(slope, (1, 9, 2)), atol=1e-13
    )


def test_the_gauss_rule_integrates_products_of_fifth_powers():
    points = gauss_points()
    places = points.values @ SQUARE
    assert points.weights.sum() == pytest.approx(4, rel=1e-14)
    assert points.weights @ (places[:, 0] ** 4 * places[:, 1] ** 2) == pytest.approx(4 / 15)


def test_the_points_of_an_element_lie_where_its_nodes_put_them():
    np.testing.assert_allclose(physical_positions(BENT, node_points())[0], BENT.nodes, atol=1e-15)


def test_edge_loads_add_up_to_traction_times_length():
    edge = np.array([[0, 1, 2]])
    mesh = QuadraticMesh(nodes=3 * SQUARE, elements=np.arange(9)[None])
    loads = edge_loads(mesh, edge, np.array([2.0, -1.0]))
    np.testing.assert_allclose(loads.sum(axis=0), [12.0, -6.0])
    np.testing.assert_allclose(loads[1], 4 * loads[0])
    assert not loads[3:].any()


def test_a_folded_element_is_found():
    assert not folded_elements(BENT).any()
    nodes = SQUARE.copy()
    nodes[8] = [-0.9, -0.9]
    assert folded_elements(QuadraticMesh(nodes=nodes, elements=np.arange(9)[None])).all()
