import numpy as np
import pytest

from lsm_core.solvers.finite_volumes.darcy import apply_darcy, face_coefficients
from lsm_core.solvers.finite_volumes.fast_poisson import FastPoisson


@pytest.mark.parametrize("shape", [(7,), (6, 9), (5, 4, 6)])
def test_it_inverts_the_laplacian_in_any_dimension(shape):
    source = np.random.default_rng(0).standard_normal(shape)
    solution = FastPoisson.for_cells(shape, np.float64).solve(source)
    laplacian = apply_darcy(face_coefficients(np.ones(shape)), solution)
    np.testing.assert_allclose(laplacian, source, rtol=1e-11, atol=1e-12)


def test_single_precision_agrees_to_single_precision():
    source = np.random.default_rng(1).standard_normal((64, 64))
    exact = FastPoisson.for_cells(source.shape, np.float64).solve(source)
    single = FastPoisson.for_cells(source.shape, np.float32).solve(source)
    assert single.dtype == np.float32
    assert np.linalg.norm(single - exact) < 1e-6 * np.linalg.norm(exact)


def test_the_source_is_left_as_it_was():
    source = np.random.default_rng(2).standard_normal((8, 8))
    before = source.copy()
    FastPoisson.for_cells(source.shape, np.float64).solve(source)
    assert np.array_equal(source, before)
