import numpy as np
import pytest

from lsm_core.solvers.finite_elements.one_point_quads import (
    Body,
    ElementConstants,
    gather_forces,
    strain_elements,
)

ELASTIC = ElementConstants(200e3, 0.3, 0.0, 0.0, 0.0)
HELD = ElementConstants(200e3, 0.3, 1e4, 7.0, 0.0)


def distorted_body(n_x=3, n_y=2):
    """A block of crooked elements, with a random state of stress."""
    generator = np.random.default_rng(0)
    nodes = np.stack(np.meshgrid(np.arange(n_x + 1.0), np.arange(n_y + 1.0), indexing="ij"))
    position = nodes + 0.15 * generator.uniform(-1, 1, nodes.shape)
    return Body(
        position=position,
        velocity=np.zeros_like(position),
        force=np.zeros_like(position),
        mass=np.ones((n_x + 1, n_y + 1)),
        stress=generator.uniform(-50, 50, (3, n_x, n_y)),
        strain_increment=np.zeros((3, n_x, n_y)),
        plastic_strain=np.zeros((n_x, n_y)),
        thickness_strain=np.zeros((n_x, n_y)),
        thickness=generator.uniform(0.8, 1.2, (n_x, n_y)),
        hourglass=np.zeros((2, n_x, n_y)),
    )


def move(body, gradient, step=1.0):
    """Give the body a linear velocity field, and move it by that for one step."""
    body.velocity[:] = np.einsum("ij,jxy->ixy", gradient, body.position)
    body.position[:] += step * body.velocity


def test_a_linear_velocity_strains_all_elements_alike():
    body = distorted_body()
    body.stress[:] = 0
    gradient = 1e-6 * np.array([[1.0, 0.4], [0.2, -0.5]])
    move(body, gradient)
    strain_elements(body, 1.0, ELASTIC)
    for component, expected in enumerate([1.0e-6, -0.5e-6, 0.6e-6]):
        np.testing.assert_allclose(body.strain_increment[component], expected, rtol=1e-5)
    # Hooke's law of plane stress.
    np.testing.assert_allclose(body.stress[0], 200e3 / 0.91 * 0.85e-6, rtol=1e-5)
    np.testing.assert_allclose(body.stress[2], 200e3 / 2.6 * 0.6e-6, rtol=1e-5)
    np.testing.assert_allclose(body.thickness_strain, -0.3 / 0.7 * 0.5e-6, rtol=1e-5)


@pytest.mark.parametrize("angle", [1e-3, 0.5, -1.2])
def test_a_rotation_turns_the_stress_and_strains_nothing(angle):
    body = distorted_body()
    before = body.stress.copy()
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    move(body, turn - np.eye(2))
    work = strain_elements(body, 1.0, ELASTIC)
    assert abs(body.strain_increment).max() < 1e-14
    assert abs(work) < 1e-11
    tensor = np.array([[before[0], before[2]], [before[2], before[1]]])
    turned = np.einsum("ik,klxy,jl->ijxy", turn, tensor, turn)
    np.testing.assert_allclose(body.stress[0], turned[0, 0], atol=1e-9)
    np.testing.assert_allclose(body.stress[1], turned[1, 1], atol=1e-9)
    np.testing.assert_allclose(body.stress[2], turned[0, 1], atol=1e-9)


def test_the_work_of_the_forces_is_that_of_the_stress():
    body = distorted_body()
    gather_forces(body, 0.0, ELASTIC)
    forces = body.force.copy()
    stress = body.stress.copy()
    e, f = (
        body.position[:, 1:, 1:] - body.position[:, :-1, :-1],
        body.position[:, :-1, 1:] - body.position[:, 1:, :-1],
    )
    volume = (e[0] * f[1] - e[1] * f[0]) / 2 * body.thickness
    # Any motion, also one that is not linear; small, so that the geometry does not change.
    body.velocity[:] = 1e-9 * np.random.default_rng(1).standard_normal(body.velocity.shape)
    body.position[:] += body.velocity
    strain_elements(body, 1.0, ELASTIC)
    of_stress = (volume * (stress * body.strain_increment).sum(axis=0)).sum()
    assert (forces * body.velocity).sum() == pytest.approx(of_stress, rel=1e-6)


def test_internal_forces_leave_the_body_where_it_is():
    body = distorted_body()
    body.hourglass[:] = 0.5
    gather_forces(body, 0.0, HELD)
    np.testing.assert_allclose(body.force.sum(axis=(1, 2)), 0, atol=1e-12)
    moment = body.position[0] * body.force[1] - body.position[1] * body.force[0]
    assert abs(moment.sum()) < 1e-11


def test_hourglass_forces_resist_alternating_motion_alone():
    body = distorted_body()
    body.stress[:] = 0
    move(body, np.array([[0.3, 0.1], [-0.2, 0.4]]), step=1e-3)
    gather_forces(body, 1e-3, HELD)
    assert abs(body.hourglass).max() < 1e-12
    signs = (-1.0) ** np.add.outer(np.arange(4), np.arange(3))
    body.velocity[:] = np.stack([signs, 0 * signs])
    _, work, _ = gather_forces(body, 1e-5, HELD)
    assert work > 0
    assert (body.force * body.velocity).sum() > 0


def test_hourglass_forces_have_a_limit():
    body = distorted_body()
    body.velocity[0] = (-1.0) ** np.add.outer(np.arange(4), np.arange(3))
    gather_forces(body, 1.0, HELD)
    e, f = (
        body.position[:, 1:, 1:] - body.position[:, :-1, :-1],
        body.position[:, :-1, 1:] - body.position[:, 1:, :-1],
    )
    side = np.sqrt((e[0] * f[1] - e[1] * f[0]) / 2)
    np.testing.assert_allclose(abs(body.hourglass[0]), 7.0 * side * body.thickness)


def test_an_element_that_is_inside_out_is_seen():
    body = distorted_body()
    *_, smallest = gather_forces(body, 0.0, ELASTIC)
    assert smallest > 0
    body.position[:, 1, 1] += 3.0
    *_, smallest = gather_forces(body, 0.0, ELASTIC)
    assert smallest < 0
