from itertools import islice

import numpy as np
import pytest

from lsm_core.benchmarks.navier_stokes import force_modes
from lsm_core.solvers.spectral.integrating_factor import IntegratingFactorRk4
from lsm_core.solvers.spectral.navier_stokes import (
    VorticityEquation,
    resolved_modes,
    vorticity_at_unit_times,
)


def equation(n_points, viscosity=1e-3, force=0.0, dtype=np.float64):
    return VorticityEquation(
        n_points=n_points, viscosity=viscosity, force=force_modes(force), dtype=dtype
    )


def grid(n_points):
    return np.meshgrid(*[np.arange(n_points) / n_points] * 2, indexing="ij")


def modes_of(values):
    return np.fft.rfft2(values, norm="forward")


def smooth_vorticity(n_points):
    x, y = (2 * np.pi * axis for axis in grid(n_points))
    return 3 * np.sin(x) * np.cos(2 * y) + 2 * np.cos(3 * x + y) - np.sin(y - 1)


def test_taylor_green_vortices_decay_in_place():
    x, y = (2 * np.pi * axis for axis in grid(32))
    vorticity = 5 * np.cos(x) * np.cos(y)
    snapshots = vorticity_at_unit_times(equation(32), modes_of(vorticity), courant=0.8)
    for time, found in enumerate(islice(snapshots, 3), start=1):
        exact = vorticity * np.exp(-1e-3 * 8 * np.pi**2 * time)
        np.testing.assert_allclose(found, exact, atol=1e-12 * 5)


def test_a_force_along_the_diagonal_builds_up_a_shear_flow():
    x, y = grid(24)
    force = 0.1 * (np.sin(2 * np.pi * (x + y)) + np.cos(2 * np.pi * (x + y)))
    snapshots = vorticity_at_unit_times(
        equation(24, force=0.1), np.zeros((24, 13), dtype=np.complex128), courant=0.8
    )
    rate = 1e-3 * 8 * np.pi**2
    for time, found in enumerate(islice(snapshots, 3), start=1):
        # The force decays within a step in the exact solution only, hence the error of the method.
        np.testing.assert_allclose(found, force * -np.expm1(-rate * time) / rate, atol=1e-9)


def test_advection_is_the_velocity_times_the_gradient():
    n_points = 64
    frequency = 2j * np.pi * np.fft.fftfreq(n_points, 1 / n_points)[:, None]
    along_y = 2j * np.pi * np.arange(n_points // 2 + 1)[None, :]
    modes = modes_of(smooth_vorticity(n_points))
    laplacian = frequency**2 + along_y**2
    laplacian[0, 0] = 1.0
    stream = -modes / laplacian

    def values(symbol, of):
        return np.fft.irfft2(symbol * of, norm="forward")

    u, v = values(along_y, stream), -values(frequency, stream)
    expected = -(u * values(frequency, modes) + v * values(along_y, modes))
    flow = equation(n_points)
    found = flow.on_grid(flow.advection_and_force(resolved_modes(modes, n_points))[None])[0]
    np.testing.assert_allclose(found, expected, atol=1e-11)
    assert flow.largest_speed(resolved_modes(modes, n_points)) == pytest.approx(
        abs(u).max() + abs(v).max()
    )


def test_it_is_of_fourth_order_in_time():
    flow = equation(32, viscosity=2e-3, force=0.1)
    initial = resolved_modes(modes_of(smooth_vorticity(32)), 32)

    def after(n_steps: int):
        method = IntegratingFactorRk4.for_step(flow.diffusion, 0.5 / n_steps, np.float64)
        modes = initial
        for _ in range(n_steps):
            modes = method.advance(modes, flow.advection_and_force)
        return modes

    exact = after(240)
    errors = np.array([np.linalg.norm(after(n_steps) - exact) for n_steps in (20, 40, 80)])
    assert np.log2(errors[:-1] / errors[1:]) == pytest.approx([4, 4], abs=0.2)


def test_a_smaller_courant_number_gives_a_smaller_error():
    flow = equation(48, force=0.1)
    initial = modes_of(smooth_vorticity(48))

    def first(courant: float):
        return next(vorticity_at_unit_times(flow, initial, courant))

    exact = first(0.15)
    errors = [np.linalg.norm(first(courant) - exact) for courant in (1.2, 0.6)]
    assert errors[0] / errors[1] > 10


def test_without_viscosity_and_force_the_enstrophy_is_kept():
    flow = equation(48, viscosity=0.0)
    initial = modes_of(smooth_vorticity(48))
    later = next(vorticity_at_unit_times(flow, initial, courant=0.4))
    before = flow.on_grid(resolved_modes(initial, 48)[None])[0]
    assert (later**2).mean() == pytest.approx((before**2).mean(), rel=1e-6)
    assert np.linalg.norm(later - before) > 0.1 * np.linalg.norm(before)


def test_single_precision_agrees_to_single_precision():
    initial = modes_of(smooth_vorticity(48))
    double = next(vorticity_at_unit_times(equation(48), initial, courant=1.0))
    single = next(vorticity_at_unit_times(equation(48, dtype=np.float32), initial, courant=1.0))
    assert single.dtype == np.float32
    assert np.linalg.norm(single - double) < 1e-4 * np.linalg.norm(double)


@pytest.mark.parametrize("n_points", [16, 24, 64])
def test_resolved_modes_are_a_cut_or_a_padding_of_the_same_field(n_points):
    x, y = grid(16)
    values = np.cos(2 * np.pi * (2 * x - 3 * y)) + np.sin(2 * np.pi * (4 * x + y))
    flow = equation(n_points)
    found = flow.on_grid(resolved_modes(modes_of(values), n_points)[None])[0]
    x, y = grid(n_points)
    expected = np.cos(2 * np.pi * (2 * x - 3 * y)) + np.sin(2 * np.pi * (4 * x + y))
    np.testing.assert_allclose(found, expected, atol=1e-13)


def test_a_flow_that_blows_up_is_reported():
    unstable = vorticity_at_unit_times(
        equation(32, viscosity=1e-6), 100 * modes_of(smooth_vorticity(32)), courant=20.0
    )
    with pytest.raises(FloatingPointError, match="no longer finite"):
        list(islice(unstable, 20))
