import numpy as np
import pytest

from lsm_core.solvers.spectral.cole_hopf import cole_hopf

VISCOSITY = 0.1


def travelling_solution(x, time, mean):
    """Return the solution whose Cole-Hopf potential is 2 + exp(-viscosity t) cos(x), moved."""
    phase = x - mean * time
    decay = np.exp(-VISCOSITY * time)
    return mean + 2 * VISCOSITY * decay * np.sin(phase) / (2 + decay * np.cos(phase))


@pytest.mark.parametrize("mean", [0.0, 0.7])
def test_it_reproduces_a_solution_in_closed_form(mean):
    x = 2 * np.pi * np.arange(64) / 64
    found = cole_hopf(
        travelling_solution(x, 0.0, mean), viscosity=VISCOSITY, period=2 * np.pi, time=1.5
    )
    np.testing.assert_allclose(found, travelling_solution(x, 1.5, mean), atol=1e-13)


def test_the_period_is_the_length_of_the_domain():
    x = 2 * np.pi * np.arange(64) / 64
    initial = travelling_solution(x, 0.0, 0.3)
    on_two_pi = cole_hopf(initial, viscosity=VISCOSITY, period=2 * np.pi, time=1.0)
    # On the unit circle the same field moves and spreads faster: x by 2 pi, viscosity by (2 pi)^2.
    on_one = (
        2
        * np.pi
        * cole_hopf(
            initial / (2 * np.pi), viscosity=VISCOSITY / (2 * np.pi) ** 2, period=1.0, time=1.0
        )
    )
    np.testing.assert_allclose(on_one, on_two_pi, atol=1e-13)
