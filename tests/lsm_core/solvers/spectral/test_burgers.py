import numpy as np
import pytest

from lsm_core.solvers.spectral.burgers import solve_burgers
from lsm_core.solvers.spectral.cole_hopf import cole_hopf

PERIOD = 2 * np.pi
X = PERIOD * np.arange(1024) / 1024


def initial_values():
    return np.stack([np.sin(X) + 0.4 * np.cos(2 * X + 1), 0.5 + np.sin(3 * X) - 0.8 * np.cos(X)])


def relative_errors(n_points, n_steps):
    modes = solve_burgers(
        np.fft.rfft(initial_values(), norm="forward"),
        viscosity=0.1,
        period=PERIOD,
        final_time=1.0,
        n_points=n_points,
        n_steps=n_steps,
    )
    found = np.fft.irfft(modes, len(X), norm="forward")
    exact = np.stack(
        [cole_hopf(u, viscosity=0.1, period=PERIOD, time=1.0) for u in initial_values()]
    )
    return np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1)


def test_it_agrees_with_the_exact_solution():
    assert relative_errors(n_points=384, n_steps=200).max() < 1e-8


def test_it_is_of_fourth_order_in_time():
    errors = np.stack([relative_errors(384, n_steps) for n_steps in (40, 80, 160)])
    assert np.log2(errors[:-1] / errors[1:]) == pytest.approx(np.full((2, 2), 4.0), abs=0.15)


def test_its_error_in_space_falls_geometrically_with_the_number_of_points():
    errors = np.array([relative_errors(n_points, 200).max() for n_points in (48, 96, 144)])
    assert (errors[:-1] / errors[1:]).min() > 100


def test_it_says_how_many_modes_it_needs():
    with pytest.raises(ValueError, match="384 points resolve 128 modes"):
        solve_burgers(
            np.zeros((1, 100), dtype=np.complex128),
            viscosity=0.1,
            period=PERIOD,
            final_time=1.0,
            n_points=384,
            n_steps=1,
        )
