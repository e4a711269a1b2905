import numpy as np
import pytest

from lsm_core.solvers.random_fields import (
    cosine_field_at_centres,
    cosine_field_modes,
    periodic_field_modes,
    random_stream,
)


def test_a_stream_is_the_same_for_the_same_seed_and_differs_otherwise():
    def draw(name: str, seed: int):
        return random_stream(name, seed).standard_normal(4)

    assert np.array_equal(draw("darcy", 3), draw("darcy", 3))
    assert not np.array_equal(draw("darcy", 3), draw("darcy", 4))
    assert not np.array_equal(draw("darcy", 3), draw("burgers", 3))


@pytest.mark.parametrize("n_dims", [1, 2, 3])
def test_periodic_modes_have_the_variance_of_the_law_and_no_mean(n_dims):
    generator = np.random.default_rng(0)
    draws = np.stack(
        [
            periodic_field_modes(generator, n_dims, 8, scale=3.0, shift=5.0, power=2.5)
            for _ in range(2000)
        ]
    )
    variance = (abs(draws) ** 2).mean(axis=0)
    assert variance.shape == (8,) * (n_dims - 1) + (5,)
    assert variance.flat[0] == 0
    for frequency in [(0,) * (n_dims - 1) + (1,), (2,) * (n_dims - 1) + (3,)]:
        squared = sum(k**2 for k in frequency)
        expected = 9.0 * (4 * np.pi**2 * squared + 5.0) ** -2.5
        # |c|² is exponential: the mean of 2000 has a deviation of 2.2 %.
        assert variance[frequency] == pytest.approx(expected, rel=0.1)


def test_the_periodic_field_is_real_in_space():
    modes = periodic_field_modes(np.random.default_rng(1), 2, 16, scale=1.0, shift=1.0, power=2.0)
    there_and_back = np.fft.rfft2(np.fft.irfft2(modes, norm="forward"), norm="forward")
    np.testing.assert_allclose(there_and_back, modes, atol=1e-15)


@pytest.mark.parametrize("n_dims", [1, 2, 3])
def test_cosine_modes_have_the_deviation_of_the_law_and_no_mean(n_dims):
    generator = np.random.default_rng(2)
    draws = np.stack(
        [
            cosine_field_modes(generator, n_dims, 4, scale=3.0, shift=9.0, power=2.0)
            for _ in range(2000)
        ]
    )
    assert not draws.reshape(len(draws), -1)[:, 0].any()
    for frequency in [(0,) * (n_dims - 1) + (1,), (2,) * (n_dims - 1) + (3,)]:
        squared = sum(k**2 for k in frequency)
        # A deviation out of 2000 draws is known to 1.6 %.
        assert draws[:, *frequency].std() == pytest.approx(3 / (np.pi**2 * squared + 9), rel=0.08)


@pytest.mark.parametrize("n_cells", [3, 5, 7, 8, 16, 40])
@pytest.mark.parametrize("n_dims", [1, 2])
def test_the_cosine_field_is_the_sum_of_its_cosines_on_few_and_many_cells(n_cells, n_dims):
    modes = np.random.default_rng(3).standard_normal((16,) * n_dims)
    centres = (np.arange(n_cells) + 0.5) / n_cells
    basis = np.sqrt(2) * np.cos(np.pi * np.outer(centres, np.arange(16)))
    basis[:, 0] = 1.0
    expected = basis @ modes if n_dims == 1 else basis @ modes @ basis.T
    np.testing.assert_allclose(cosine_field_at_centres(modes, n_cells), expected, atol=1e-12)
