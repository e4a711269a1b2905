import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

from lsm_core.benchmarks.darcy import Darcy
from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_volumes.darcy import apply_darcy, face_coefficients, solve_darcy


def centres(n_cells, n_dims):
    return np.meshgrid(*[(np.arange(n_cells) + 0.5) / n_cells] * n_dims, indexing="ij")


def darcy_matrix(coefficient):
    """Return the matrix of the scheme, assembled face by face without the code under test."""
    n_cells = coefficient.shape[0]
    number = np.arange(coefficient.size).reshape(coefficient.shape)
    rows, columns, values = [], [], []
    for axis in range(coefficient.ndim):
        a = np.moveaxis(coefficient, axis, 0)
        cell = np.moveaxis(number, axis, 0)
        weight = n_cells**2 * (a[1:] + a[:-1]) / 2
        for first, second in ((cell[1:], cell[:-1]), (cell[:-1], cell[1:])):
            rows += [first, first]
            columns += [first, second]
            values += [weight, -weight]
        for side in (0, -1):
            rows.append(cell[side])
            columns.append(cell[side])
            values.append(2 * n_cells**2 * a[side])
    flat = [np.concatenate([part.ravel() for part in parts]) for parts in (values, rows, columns)]
    return scipy.sparse.csc_matrix((flat[0], (flat[1], flat[2])))


@pytest.mark.parametrize("n_dims", [1, 2, 3])
def test_it_is_of_second_order_on_a_manufactured_solution(n_dims):
    # a = exp(x + ...) and u = sin(pi x) ...: the source follows by differentiation.
    def error(n_cells: int) -> float:
        x = centres(n_cells, n_dims)
        a = np.exp(sum(x))
        u = np.prod([np.sin(np.pi * axis) for axis in x], axis=0)
        slopes = [
            np.pi
            * np.cos(np.pi * x[axis])
            * np.prod(
                [np.sin(np.pi * x[other]) for other in range(n_dims) if other != axis], axis=0
            )
            for axis in range(n_dims)
        ]
        source = a * (n_dims * np.pi**2 * u - sum(slopes))
        found = solve_darcy(a, source).pressure
        return float(np.sqrt(np.mean((found - u) ** 2)))

    sizes = {1: (32, 64, 128), 2: (32, 64, 128), 3: (12, 24, 48)}[n_dims]
    errors = np.array([error(n_cells) for n_cells in sizes])
    assert np.log2(errors[:-1] / errors[1:]) == pytest.approx([2, 2], abs=0.1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_agrees_with_a_sparse_direct_solve(seed):
    a = Darcy(resolution=97).coefficient(seed)
    direct = scipy.sparse.linalg.spsolve(darcy_matrix(a), np.ones(a.size)).reshape(a.shape)
    found = solve_darcy(a, np.ones_like(a)).pressure
    assert np.linalg.norm(found - direct) < 1e-9 * np.linalg.norm(direct)


def test_it_agrees_with_a_direct_solve_for_other_contrasts_and_sources():
    generator = np.random.default_rng(5)
    a = np.exp(generator.standard_normal((20, 20)))
    source = generator.standard_normal(a.shape)
    direct = scipy.sparse.linalg.spsolve(darcy_matrix(a), source.ravel()).reshape(a.shape)
    found = solve_darcy(a, source, tolerance=1e-11).pressure
    assert np.linalg.norm(found - direct) < 1e-9 * np.linalg.norm(direct)


def test_the_number_of_iterations_does_not_grow_with_the_resolution():
    counts = {
        n_cells: max(
            solve_darcy(a, np.ones_like(a)).n_iterations
            for a in (Darcy(resolution=n_cells).coefficient(seed) for seed in range(3))
        )
        for n_cells in (32, 64, 128, 256)
    }
    assert max(counts.values()) <= counts[32] + 2
    assert max(counts.values()) <= 22


def test_the_torsion_problem_has_its_known_maximum():
    # -Δu = 1 in the unit square: u(1/2, 1/2) = 0.0736713 (Timoshenko, torsion of a square bar).
    n_cells = 129
    pressure = solve_darcy(np.ones((n_cells, n_cells)), np.ones((n_cells, n_cells))).pressure
    assert pressure[n_cells // 2, n_cells // 2] == pytest.approx(0.0736713, abs=1e-5)


def test_cells_of_different_width_along_the_axes_are_allowed():
    x, y = np.meshgrid((np.arange(40) + 0.5) / 40, (np.arange(60) + 0.5) / 60, indexing="ij")
    u = np.sin(np.pi * x) * np.sin(2 * np.pi * y)
    found = solve_darcy(np.ones_like(u), 5 * np.pi**2 * u).pressure
    assert abs(found - u).max() < 2e-3


def test_the_operator_is_symmetric_and_as_assembled():
    a = Darcy(resolution=12).coefficient(0)
    u = np.random.default_rng(0).standard_normal(a.shape)
    expected = (darcy_matrix(a) @ u.ravel()).reshape(a.shape)
    np.testing.assert_allclose(apply_darcy(face_coefficients(a), u), expected, rtol=1e-12)


def test_without_a_source_there_is_no_pressure():
    assert not solve_darcy(np.ones((5, 5)), np.zeros((5, 5))).pressure.any()


def test_a_coefficient_that_is_not_positive_is_refused():
    a = np.ones((4, 4))
    a[1, 2] = 0.0
    with pytest.raises(ValueError, match="must be positive, its minimum is 0"):
        solve_darcy(a, np.ones_like(a))


def test_too_few_iterations_are_reported():
    a = Darcy(resolution=16).coefficient(0)
    with pytest.raises(SolveFailed, match="after 3 iterations"):
        solve_darcy(a, np.ones_like(a), max_iterations=3)
