import numpy as np
import pytest

from lsm_core.solvers.spectral.integrating_factor import IntegratingFactorRk4


def test_without_a_nonlinear_term_a_step_is_the_exact_decay():
    rates = np.array([0.0, -1.0, -1e4])
    state = np.array([1 + 2j, 3 - 1j, 0.5 + 0j])
    later = IntegratingFactorRk4.for_step(rates, 0.1, np.float64).advance(state, np.zeros_like)
    np.testing.assert_allclose(later, np.exp(0.1 * rates) * state, rtol=1e-15)


def test_the_method_is_of_fourth_order():
    # u' = -u + u² has the solution 1 / (1 + (1/u(0) - 1) exp(t)).
    start = 0.5 + 0.5j

    def error(n_steps: int) -> float:
        method = IntegratingFactorRk4.for_step(np.array([-1.0]), 2.0 / n_steps, np.float64)
        state = np.array([start])
        for _ in range(n_steps):
            state = method.advance(state, np.square)
        return abs(state[0] - 1 / (1 + (1 / start - 1) * np.exp(2.0)))

    errors = np.array([error(n_steps) for n_steps in (16, 32, 64)])
    assert np.log2(errors[:-1] / errors[1:]) == pytest.approx([4, 4], abs=0.1)


def test_single_precision_stays_single():
    method = IntegratingFactorRk4.for_step(np.array([-1.0, -2.0]), 0.1, np.float32)
    later = method.advance(np.ones(2, dtype=np.complex64), np.square)
    assert later.dtype == np.complex64
