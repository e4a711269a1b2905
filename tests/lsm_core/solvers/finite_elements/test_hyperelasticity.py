import numpy as np
import pytest

from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_elements.hyperelasticity import (
    MooneyRivlin,
    cauchy_stress,
    internal_forces,
    solve_equilibrium,
    von_mises,
)
from lsm_core.solvers.finite_elements.quadratic_quads import (
    QuadraticMesh,
    edge_loads,
    gauss_points,
    node_points,
)
from lsm_core.solvers.finite_elements.void_mesh import draw_void, mesh_unit_cell, round_void

RUBBER = MooneyRivlin(first_modulus=1.863e5, second_modulus=9.79e3)
PULL = np.array([0.0, 100.0])


def block_mesh(n_elements=2):
    """A unit square of n by n elements, node (i, j) numbered i (2 n + 1) + j."""
    n_along = 2 * n_elements + 1
    along = np.linspace(0, 1, n_along)
    nodes = np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1).reshape(-1, 2)
    first = 2 * np.arange(n_elements)
    corner = (first[:, None] * n_along + first).reshape(-1, 1)
    within = (np.arange(3)[:, None] * n_along + np.arange(3)).ravel()
    return QuadraticMesh(nodes=nodes, elements=corner + within)


def stretched_states(n_states=20):
    deformation = np.eye(2) + 0.3 * np.random.default_rng(1).uniform(-1, 1, (n_states, 2, 2))
    return deformation.mT @ deformation


def symmetric_steps(size):
    """Return the changes of a symmetric tensor in its components (0, 0), (1, 1), (0, 1)."""
    shear = np.array([[0.0, 0.5], [0.5, 0.0]])
    return size * np.stack([np.diag([1.0, 0.0]), np.diag([0.0, 1.0]), shear])


def test_the_stress_is_twice_the_derivative_of_the_energy():
    states = stretched_states()
    stress = RUBBER.stress(states)
    for step in symmetric_steps(1e-5):
        difference = (RUBBER.energy(states + step) - RUBBER.energy(states - step)) / 2e-5
        along = np.einsum("pij,ij->p", stress, step / 1e-5) / 2
        np.testing.assert_allclose(along, difference, rtol=1e-7, atol=1e-7 * abs(stress).max())


def test_the_tangent_is_twice_the_derivative_of_the_stress():
    states = stretched_states()
    tangent = RUBBER.tangent(states)
    for step in symmetric_steps(1e-5):
        difference = (RUBBER.stress(states + step) - RUBBER.stress(states - step)) / 2e-5
        along = np.einsum("pijkl,kl->pij", tangent, step / 1e-5) / 2
        assert abs(along - difference).max() < 1e-7 * abs(tangent).max()


def test_the_stiffness_is_the_derivative_of_the_internal_forces():
    mesh = mesh_unit_cell(round_void(0.3), n_around=8, n_outward=1)
    generator = np.random.default_rng(2)
    displacement = 0.02 * generator.standard_normal(mesh.nodes.shape)
    direction = generator.standard_normal(mesh.nodes.shape)
    _, stiffness = internal_forces(mesh, RUBBER, displacement)
    ahead, _ = internal_forces(mesh, RUBBER, displacement + 1e-6 * direction)
    behind, _ = internal_forces(mesh, RUBBER, displacement - 1e-6 * direction)
    difference = ((ahead - behind) / 2e-6).ravel()
    error = np.linalg.norm(stiffness @ direction.ravel() - difference)
    assert error < 1e-7 * np.linalg.norm(difference)
    assert abs(stiffness - stiffness.T).max() < 1e-9 * abs(stiffness).max()


def test_a_rotated_sheet_carries_no_stress():
    mesh = mesh_unit_cell(round_void(0.3), n_around=8, n_outward=1)
    turn = np.array([[np.cos(1.0), -np.sin(1.0)], [np.sin(1.0), np.cos(1.0)]])
    forces, _ = internal_forces(mesh, RUBBER, mesh.nodes @ turn.T - mesh.nodes)
    assert abs(forces).max() < 1e-9 * RUBBER.first_modulus


@pytest.mark.parametrize("stretch", [1.0001, 1.5, 2.5])
def test_a_pulled_block_follows_the_uniaxial_law(stretch):
    mesh = block_mesh()
    on_bottom, on_left = mesh.nodes[:, 1] == 0, mesh.nodes[:, 0] == 0
    top = np.flatnonzero(mesh.nodes[:, 1] == 1)
    nominal = 2 * (stretch - stretch**-2) * (RUBBER.first_modulus + RUBBER.second_modulus / stretch)
    equilibrium = solve_equilibrium(
        mesh,
        RUBBER,
        loads=edge_loads(
            mesh, np.stack([top[:-2:2], top[1:-1:2], top[2::2]], axis=-1), np.array([0.0, nominal])
        ),
        fixed=np.stack([on_left, on_bottom], axis=-1),
        n_load_steps=4,
    )
    exact = mesh.nodes * np.array([stretch**-0.5 - 1, stretch - 1])
    np.testing.assert_allclose(equilibrium.displacement, exact, atol=1e-10)
    stress = cauchy_stress(mesh, RUBBER, equilibrium.displacement, gauss_points())
    np.testing.assert_allclose(stress[..., 1, 1], stretch * nominal, rtol=1e-7)
    np.testing.assert_allclose(von_mises(stress), stretch * nominal, rtol=1e-7)


def test_a_small_hole_concentrates_the_stress_threefold():
    mesh = mesh_unit_cell(round_void(0.02), n_around=48, n_outward=12, outward_growth=1.5)
    fixed = np.zeros(mesh.nodes.shape, dtype=bool)
    fixed[mesh.bottom, 1] = True
    fixed[mesh.bottom[mesh.bottom.size // 2], 0] = True
    equilibrium = solve_equilibrium(
        mesh, RUBBER, loads=edge_loads(mesh, mesh.top_edges, PULL), fixed=fixed
    )
    stress = cauchy_stress(mesh, RUBBER, equilibrium.displacement, node_points())
    beside = (
        3 * mesh.n_rays // 8
    )  # the ray to the middle of the right side, on the edge of the hole
    np.testing.assert_allclose(mesh.nodes[beside], [0.52, 0.5])
    concentration = stress[mesh.elements == beside][:, 1, 1] / PULL[1]
    # Heywood's formula for a strip gives 3.005 at this width.
    np.testing.assert_allclose(concentration, 3.0, rtol=0.03)


def pull_clamped_cell(void, n_around, n_outward):
    mesh = mesh_unit_cell(void, n_around=n_around, n_outward=n_outward)
    clamped = np.zeros(mesh.nodes.shape, dtype=bool)
    clamped[mesh.bottom] = True
    loads = edge_loads(mesh, mesh.top_edges, PULL)
    return mesh, loads, solve_equilibrium(mesh, RUBBER, loads=loads, fixed=clamped)


def random_void(seed):
    generator = np.random.default_rng(seed)
    return draw_void(generator, n_modes=10, smallest_radius=0.2, largest_radius=0.4)


def test_the_reaction_of_the_clamp_balances_the_load():
    mesh, loads, equilibrium = pull_clamped_cell(random_void(0), 12, 1)
    forces, _ = internal_forces(mesh, RUBBER, equilibrium.displacement)
    np.testing.assert_allclose(loads.sum(axis=0), PULL)
    np.testing.assert_allclose(forces[mesh.bottom].sum(axis=0), -PULL, atol=1e-6)
    assert not equilibrium.displacement[mesh.bottom].any()


def test_newtons_method_converges_quadratically():
    _, _, equilibrium = pull_clamped_cell(random_void(0), 12, 1)
    start, first, second = equilibrium.residuals[:3]
    assert start == pytest.approx(1)
    assert second < first**2
    assert equilibrium.residuals[-1] < 1e-10


def test_a_load_beyond_the_reach_of_newtons_method_is_reported():
    mesh = mesh_unit_cell(round_void(0.3), n_around=8, n_outward=1)
    clamped = np.zeros(mesh.nodes.shape, dtype=bool)
    clamped[mesh.bottom] = True
    loads = edge_loads(mesh, mesh.top_edges, np.array([0.0, -3e7]))
    with pytest.raises(SolveFailed, match="hyperelastic equilibrium"):
        solve_equilibrium(mesh, RUBBER, loads=loads, fixed=clamped, max_iterations=5)


def displacement_and_stress_at_coarse_vertices(void, refinement):
    """Solve on a mesh refined uniformly; return values at the vertices of the 36 x 3 mesh."""
    mesh, _, equilibrium = pull_clamped_cell(void, 36 * refinement, 3 * refinement)
    stress = von_mises(cauchy_stress(mesh, RUBBER, equilibrium.displacement, node_points()))
    total, count = np.zeros(len(mesh.nodes)), np.zeros(len(mesh.nodes))
    np.add.at(total, mesh.elements, stress)
    np.add.at(count, mesh.elements, 1)
    stride = 2 * refinement
    shape = (mesh.n_rings, mesh.n_rays)
    stress_at_nodes = (total / count).reshape(shape)[::stride, ::stride]
    # The clamped corners are singular: the stress there grows with every refinement.
    stress_at_nodes[-1, [0, 9]] = 0.0
    return equilibrium.displacement.reshape(*shape, 2)[::stride, ::stride], stress_at_nodes


def relative(values, reference):
    return np.linalg.norm(values - reference) / np.linalg.norm(reference)


@pytest.mark.slow
def test_refinement_brings_the_answer_closer_to_a_finer_reference():
    void = random_void(3)
    *coarser, finest = (
        displacement_and_stress_at_coarse_vertices(void, refinement) for refinement in (1, 2, 4, 8)
    )
    displacement_errors = [relative(solution[0], finest[0]) for solution in coarser]
    stress_errors = [relative(solution[1], finest[1]) for solution in coarser]
    assert displacement_errors[0] > 1.8 * displacement_errors[1] > 3.2 * displacement_errors[2]
    assert stress_errors[0] > 1.8 * stress_errors[1] > 3.2 * stress_errors[2]
