from dataclasses import replace

import numpy as np
import pytest

from lsm_core.benchmarks.burgers import FINEST_RESOLUTION, Burgers, initial_modes
from lsm_core.solvers.spectral.cole_hopf import cole_hopf

FINEST = Burgers(resolution=FINEST_RESOLUTION)


def relative_error(sample, seed):
    exact = cole_hopf(
        np.fft.irfft(initial_modes(seed), FINEST_RESOLUTION, norm="forward"),
        viscosity=FINEST.viscosity,
        period=FINEST.period,
        time=FINEST.final_time,
    )
    return np.linalg.norm(sample["final"] - exact) / np.linalg.norm(exact)


def test_samples_agree_with_the_exact_solution():
    # 837 is the steepest of the first 2048 seeds.
    seeds = [0, 1, 2, 3, 837]
    samples = FINEST.generate_many(seeds)
    errors = [relative_error(*pair) for pair in zip(samples, seeds, strict=True)]
    assert max(errors) < 1e-7


@pytest.mark.slow
def test_the_first_two_hundred_samples_agree_with_the_exact_solution():
    samples = FINEST.generate_many(range(200))
    assert max(relative_error(sample, seed) for seed, sample in enumerate(samples)) < 1e-7


def test_a_sample_alone_equals_the_same_sample_among_others():
    benchmark = Burgers(resolution=64, solver_steps=20)
    together = benchmark.generate_many(range(37))
    for seed in (0, 5, 31, 32, 36):
        alone = benchmark.generate(seed)
        assert np.array_equal(alone["initial"], together[seed]["initial"])
        assert np.array_equal(alone["final"], together[seed]["final"])


def test_every_resolution_samples_the_same_functions():
    fine = replace(FINEST, solver_steps=20).generate(7)
    for resolution in (256, 512, 1024, 2048, 4096):
        coarse = Burgers(resolution=resolution, solver_steps=20).generate(7)
        stride = FINEST_RESOLUTION // resolution
        assert np.array_equal(coarse["initial"], fine["initial"][::stride])
        assert np.array_equal(coarse["final"], fine["final"][::stride])


def test_initial_fields_follow_the_stated_law():
    fields = np.stack(
        [np.fft.irfft(initial_modes(seed)[:65], 128, norm="forward") for seed in range(500)]
    )
    frequencies = 2 * np.pi * np.arange(1, 65)
    variance = 2 * np.sum((25 / (frequencies**2 + 25)) ** 2)
    assert abs(fields.mean(axis=1)).max() < 1e-14
    # The first mode carries most of the variance, so 500 fields give it to some 5 %.
    assert fields.var() == pytest.approx(variance, rel=0.15)


def test_samples_are_what_the_variables_say():
    benchmark = Burgers(resolution=32, solver_steps=5)
    sample = benchmark.generate(0)
    assert set(sample) == {variable.name for variable in benchmark.variables}
    for variable in benchmark.variables:
        assert sample[variable.name].shape == variable.shape
        assert sample[variable.name].dtype == np.float32
    assert benchmark.shape.space == (32,)
    np.testing.assert_array_equal(benchmark.coordinates["x"][:2], [0, 1 / 32])


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"resolution": 100}, "resolution must divide 8192"),
        ({"resolution": 1}, "resolution must divide 8192"),
        ({"viscosity": 0.0}, "viscosity must be positive"),
        ({"solver_points": 2}, "solver_points must be from 4"),
        ({"solver_steps": 0}, "solver_steps must be at least 1"),
    ],
)
def test_impossible_parameters_are_refused(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        Burgers(**parameters)
