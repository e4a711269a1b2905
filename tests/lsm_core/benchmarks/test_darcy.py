import numpy as np
import pytest

from lsm_core.benchmarks.darcy import Darcy
from lsm_core.solvers.finite_volumes.darcy import apply_darcy, face_coefficients


def test_samples_satisfy_the_equation():
    benchmark = Darcy(resolution=48)
    sample = benchmark.generate(3)
    faces = face_coefficients(sample["coefficient"].astype(np.float64))
    outflow = apply_darcy(faces, sample["pressure"].astype(np.float64))
    # The sum over all cells is insensitive to the rounding to float32, which h⁻² magnifies.
    assert outflow.mean() == pytest.approx(1.0, rel=1e-5)
    assert abs(outflow - 1).max() < 0.05
    assert (sample["pressure"] > 0).all()


def test_a_sample_alone_equals_the_same_sample_among_others():
    benchmark = Darcy(resolution=33)
    together = benchmark.generate_many([5, 0, 9])
    for seed, sample in zip([5, 0, 9], together, strict=True):
        alone = benchmark.generate(seed)
        assert np.array_equal(alone["coefficient"], sample["coefficient"])
        assert np.array_equal(alone["pressure"], sample["pressure"])


def test_every_resolution_samples_the_same_medium():
    # The centres of 3 n cells contain those of n cells.
    fine = Darcy(resolution=192).coefficient(2)
    coarse = Darcy(resolution=64).coefficient(2)
    assert np.array_equal(fine[1::3, 1::3], coarse)


def test_the_pressure_converges_with_the_resolution():
    finest = Darcy(resolution=270).generate(4)["pressure"][4::9, 4::9]
    errors = []
    for n_cells, centre in ((30, slice(None)), (90, slice(1, None, 3))):
        pressure = Darcy(resolution=n_cells).generate(4)["pressure"][centre, centre]
        errors.append(np.linalg.norm(pressure - finest) / np.linalg.norm(finest))
    assert errors[0] < 0.05
    assert errors[1] < errors[0] / 2


def test_a_stride_keeps_every_so_many_cells():
    whole = Darcy(resolution=41)
    strided = Darcy(resolution=41, stride=5)
    assert strided.shape.space == (9, 9)
    for name, field in strided.generate(1).items():
        assert np.array_equal(field, whole.generate(1)[name][::5, ::5])
    np.testing.assert_array_equal(strided.coordinates["x"], whole.coordinates["x"][::5])


def test_the_published_grid_has_eighty_five_points_a_side():
    published = Darcy(resolution=421, stride=5)
    assert published.shape.space == (85, 85)
    assert published.coordinates["y"][-1] == (420 + 0.5) / 421


def test_both_phases_are_equally_likely():
    benchmark = Darcy(resolution=16, field_modes=16)
    shares = [(benchmark.coefficient(seed) == 12).mean() for seed in range(300)]
    assert set(np.unique(benchmark.coefficient(0))) == {3.0, 12.0}
    # The share of one medium varies by about 0.15, the mean of 300 by 0.01.
    assert np.mean(shares) == pytest.approx(0.5, abs=0.04)


def test_samples_are_what_the_variables_say():
    benchmark = Darcy(resolution=16)
    sample = benchmark.generate(0)
    assert set(sample) == {variable.name for variable in benchmark.variables}
    for variable in benchmark.variables:
        assert sample[variable.name].shape == variable.shape
        assert sample[variable.name].dtype == np.float32


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"resolution": 1}, "resolution must be at least 2"),
        ({"resolution": 8, "stride": 8}, "stride must be from 1 to 7"),
        ({"low_coefficient": 0.0}, "low_coefficient must be positive"),
        ({"tolerance": 0.0}, "tolerance must be between 0 and 1"),
    ],
)
def test_impossible_parameters_are_refused(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        Darcy(**parameters)
