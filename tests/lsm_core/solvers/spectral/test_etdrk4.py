import numpy as np
import pytest

from lsm_core.solvers.spectral.etdrk4 import Etdrk4


def test_without_a_nonlinear_term_a_step_is_the_exact_decay():
    rates = np.array([0.0, -1e-9, -1.0, -1e4])
    state = np.array([1 + 2j, 3 - 1j, 0.5 + 0j, 2j])
    later = Etdrk4.for_step(rates, 0.1).advance(state, np.zeros_like)
    np.testing.assert_allclose(later, np.exp(0.1 * rates) * state, rtol=1e-15)


@pytest.mark.parametrize("rate", [0.0, -1e-7, -1e-3, -1.0, -30.0])
def test_a_constant_force_is_integrated_exactly_for_small_and_large_rates(rate):
    step, force = 0.25, 2.0
    later = Etdrk4.for_step(np.array([rate]), step).advance(
        np.array([1 + 0j]), lambda state: np.full_like(state, force)
    )
    # expm1 keeps all digits where (exp(z) - 1) / z loses them.
    gain = step if rate == 0 else np.expm1(step * rate) / rate
    np.testing.assert_allclose(later, np.exp(step * rate) + force * gain, rtol=1e-13)


def test_the_method_is_of_fourth_order():
    # u' = -u + u² from u(0) = 1/2 has the solution 1 / (1 + exp(t)).
    def error(n_steps: int) -> float:
        stepper = Etdrk4.for_step(np.array([-1.0]), 2.0 / n_steps)
        state = np.array([0.5 + 0j])
        for _ in range(n_steps):
            state = stepper.advance(state, np.square)
        return abs(state[0] - 1 / (1 + np.exp(2.0)))

    errors = np.array([error(n_steps) for n_steps in (8, 16, 32)])
    assert np.log2(errors[:-1] / errors[1:]) == pytest.approx([4, 4], abs=0.15)
