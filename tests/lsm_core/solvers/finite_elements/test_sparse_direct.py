import sys
from contextlib import closing

import numpy as np
import pytest
from scipy.sparse import csr_array, diags_array

from lsm_core.solvers.finite_elements import sparse_direct


def systems() -> list[csr_array]:
    """Return two unsymmetric matrices with one sparsity pattern."""
    random = np.random.default_rng(1)
    diagonals = [random.normal(size=49), 4 + random.random(50), random.normal(size=40)]
    first = csr_array(diags_array(diagonals, offsets=[-1, 0, 10], shape=(50, 50)).tocsr())
    second = first.copy()
    second.data = second.data * random.uniform(0.5, 1.5, size=second.data.size)
    return [first, second]


@pytest.mark.parametrize("kind", ["SuperLu", "Pardiso"])
def test_systems_of_one_pattern_are_solved_to_rounding_error(kind):
    if kind == "Pardiso":
        pytest.importorskip("pypardiso")
    expected = np.linspace(-1, 1, 50)
    with closing(getattr(sparse_direct, kind)()) as solver:
        for matrix in systems():
            np.testing.assert_allclose(
                solver.solve(matrix, matrix @ expected), expected, atol=1e-13
            )


def test_two_pardiso_solvers_do_not_disturb_each_other():
    pytest.importorskip("pypardiso")
    expected = np.linspace(-1, 1, 50)
    first, second = systems()
    with closing(sparse_direct.Pardiso()) as one:
        one.solve(first, first @ expected)
        with closing(sparse_direct.Pardiso()) as two:
            two.solve(second, second @ expected)
        np.testing.assert_allclose(one.solve(second, second @ expected), expected, atol=1e-13)


def test_superlu_stands_in_where_pardiso_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pypardiso", None)
    assert isinstance(sparse_direct.direct_solver(), sparse_direct.SuperLu)
