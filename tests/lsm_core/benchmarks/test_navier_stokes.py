import numpy as np
import pytest

from lsm_core.benchmarks.navier_stokes import NavierStokes, force_modes, initial_modes

SMALL = {"solver_resolution": 64, "n_history": 2, "n_future": 1}


def test_a_sample_alone_equals_the_same_sample_among_others():
    benchmark = NavierStokes(**SMALL, resolution=32)
    together = benchmark.generate_many([4, 0, 7])
    for seed, sample in zip([4, 0, 7], together, strict=True):
        alone = benchmark.generate(seed)
        assert np.array_equal(alone["vorticity_history"], sample["vorticity_history"])
        assert np.array_equal(alone["vorticity_future"], sample["vorticity_future"])


def test_a_coarse_resolution_is_a_stride_of_the_solve():
    fine = NavierStokes(**SMALL, resolution=64).generate(1)
    coarse = NavierStokes(**SMALL, resolution=16).generate(1)
    for name, field in coarse.items():
        assert np.array_equal(field, fine[name][::4, ::4])


def test_the_future_follows_the_history():
    whole = NavierStokes(solver_resolution=32, resolution=32, n_history=3, n_future=1).generate(2)
    parts = NavierStokes(solver_resolution=32, resolution=32, n_history=1, n_future=3).generate(2)
    joined = [np.concatenate(list(sample.values()), axis=-1) for sample in (whole, parts)]
    assert np.array_equal(*joined)


def test_two_solver_resolutions_start_from_the_same_flow():
    coarse, fine = (
        NavierStokes(solver_resolution=n, resolution=32, n_history=1, n_future=1).generate(0)
        for n in (64, 128)
    )
    difference = coarse["vorticity_history"] - fine["vorticity_history"]
    assert np.linalg.norm(difference) < 0.03 * np.linalg.norm(fine["vorticity_history"])


def test_initial_vorticity_follows_the_stated_law():
    fields = np.stack([np.fft.irfft2(initial_modes(seed), norm="forward") for seed in range(40)])
    frequency = np.fft.fftfreq(256, 1 / 256)
    squared = frequency[:, None] ** 2 + frequency[None, :] ** 2
    variances = 2 * 7**3 * (4 * np.pi**2 * squared + 49) ** -2.5
    variances[0, 0] = 0.0
    assert np.sqrt(variances.sum()) == pytest.approx(0.262, abs=0.001)
    # The eight lowest modes carry most of it: 40 fields give the deviation to some 5 %.
    assert fields.std() == pytest.approx(0.262, rel=0.15)
    assert abs(fields.mean(axis=(1, 2))).max() < 1e-14


def test_the_force_is_sine_plus_cosine_along_the_diagonal():
    x, y = np.meshgrid(*[np.arange(4) / 4] * 2, indexing="ij")
    expected = 0.1 * (np.sin(2 * np.pi * (x + y)) + np.cos(2 * np.pi * (x + y)))
    np.testing.assert_allclose(
        np.fft.irfft2(force_modes(0.1), norm="forward"), expected, atol=1e-16
    )


def test_samples_are_what_the_variables_and_coordinates_say():
    benchmark = NavierStokes(solver_resolution=32, resolution=16, n_history=2, n_future=3)
    sample = benchmark.generate(0)
    assert set(sample) == {variable.name for variable in benchmark.variables}
    for variable in benchmark.variables:
        assert sample[variable.name].shape == variable.shape
        assert sample[variable.name].dtype == np.float32
        assert variable.shape == tuple(len(benchmark.coordinates[dim]) for dim in variable.dims)
    assert (benchmark.shape.n_inputs, benchmark.shape.n_outputs) == (2, 3)
    np.testing.assert_array_equal(benchmark.coordinates["future"], [3, 4, 5])


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"resolution": 100}, "divide solver_resolution"),
        ({"solver_resolution": 4}, "solver_resolution must be at least 8"),
        ({"n_future": 0}, "n_future must be at least 1"),
        ({"viscosity": 0.0}, "viscosity must be positive"),
    ],
)
def test_impossible_parameters_are_refused(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        NavierStokes(**parameters)
