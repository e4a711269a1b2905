import numpy as np
import pytest

from lsm_core.solvers.finite_volumes.airfoil_mesh import (
    AirfoilMeshSize,
    airfoil_mesh,
    bend,
    naca_half_thickness,
    naca_surface,
    stretched_points,
)
from lsm_core.solvers.finite_volumes.c_mesh import c_mesh

STRAIGHT = np.zeros(8)
BENT = np.array([0.0, 0.05, -0.03, 0.01, 0.04, -0.05, 0.02, 0.03])


def test_the_profile_is_twelve_percent_thick_and_closed():
    x = np.linspace(0, 1, 1001)
    half = naca_half_thickness(x)
    assert 2 * half.max() == pytest.approx(0.12, abs=1e-4)
    assert x[half.argmax()] == pytest.approx(0.3, abs=0.01)
    assert half[-1] == pytest.approx(0, abs=1e-16)


def test_the_surface_goes_once_around_with_an_extra_node_at_the_nose():
    surface = naca_surface(120)
    assert surface.shape == (121, 2)
    assert surface[[0, 60, 120]].tolist() == [[1, 0], [0, 0], [1, 0]]
    assert surface[30, 1] > 0 > surface[90, 1]
    np.testing.assert_allclose(surface[59, 0], 1 / 59 / 4)
    np.testing.assert_allclose(np.diff(surface[58:0:-1, 0]), 1 / 59)


def test_equal_displacements_move_the_airfoil_as_a_whole():
    surface = naca_surface(40)
    np.testing.assert_allclose(
        bend(surface, np.full(8, 0.03)) - surface, [[0, 0.03]] * 41, atol=1e-15
    )


@pytest.mark.parametrize(
    ("control", "place"),
    [(0, (-0.25, -0.1)), (3, (1.25, -0.1)), (4, (1.25, 0.1)), (7, (-0.25, 0.1))],
)
def test_controls_are_numbered_around_the_box(control, place):
    moved = bend(np.array(place), np.eye(8)[control])
    np.testing.assert_allclose(moved, [place[0], place[1] + 1], atol=1e-14)


def test_stretched_points_start_as_told_and_grow():
    points = stretched_points(50, first=1e-3)
    cells = np.diff(points)
    assert (points[0], points[-1]) == (0, 1)
    np.testing.assert_allclose(cells[0], 1e-3)
    np.testing.assert_allclose(cells[1:38] / cells[:37], 1.02)
    np.testing.assert_allclose(cells[38:] / cells[37:-1], cells[-1] / cells[-2])


def test_too_large_a_first_cell_is_refused():
    with pytest.raises(ValueError, match="too long"):
        stretched_points(50, first=0.1)


@pytest.mark.parametrize("displacements", [STRAIGHT, BENT])
def test_the_mesh_wraps_the_airfoil_and_meets_itself_in_the_wake(displacements):
    nodes = airfoil_mesh(AirfoilMeshSize(), displacements)
    assert nodes.shape == (221, 51, 2)
    np.testing.assert_allclose(nodes[50:171, 0], bend(naca_surface(120), displacements))
    np.testing.assert_array_equal(nodes[:51, 0], nodes[:169:-1, 0])
    np.testing.assert_allclose(nodes[[0, 220], 0], [[40, 0], [40, 0]])
    np.testing.assert_allclose(
        nodes[[0, 110, 220], -1], [[40, 40], [-39, 0], [40, -40]], atol=1e-13
    )


@pytest.mark.parametrize("displacements", [STRAIGHT, BENT])
def test_cells_are_closed_and_fill_the_domain(displacements):
    mesh = c_mesh(airfoil_mesh(AirfoilMeshSize(), displacements), n_wake=50)
    normals_i, normals_j = mesh.normals_i, mesh.normals_j.swapaxes(0, 1)
    closed = np.diff(normals_i, axis=0) + np.diff(normals_j, axis=1)
    assert np.max(np.abs(closed)) < 1e-13
    # A polygon of 120 sides instead of the half circle, less the airfoil itself.
    outer = 80 * 39 + 40**2 * 60 * np.sin(np.pi / 120)
    x, y = mesh.nodes[50:171, 0].T
    airfoil = abs(np.sum(x[1:] * y[:-1] - x[:-1] * y[1:])) / 2
    assert mesh.volumes.sum() == pytest.approx(outer - airfoil, rel=1e-12)


def test_a_mesh_may_turn_either_way_but_not_both():
    nodes = airfoil_mesh(AirfoilMeshSize(n_wake=8, n_surface=16, n_normal=8), STRAIGHT)
    mesh, mirrored = c_mesh(nodes, n_wake=8), c_mesh(nodes[::-1], n_wake=8)
    np.testing.assert_allclose(mesh.volumes, mirrored.volumes[::-1])
    np.testing.assert_allclose(mesh.normals_j, mirrored.normals_j[:, ::-1])
    nodes[10, 3] = nodes[10, 6]
    with pytest.raises(ValueError, match="tangled"):
        c_mesh(nodes, n_wake=8)


@pytest.mark.parametrize("wrong", [{"n_surface": 41}, {"n_normal": 4}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match="at least 8 cells and an even n_surface"):
        AirfoilMeshSize(**wrong)
