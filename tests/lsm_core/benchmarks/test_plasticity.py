from dataclasses import replace

import numpy as np
import pytest

import lsm_core.benchmarks.plasticity
from lsm_core.benchmarks.plasticity import Plasticity
from lsm_core.problems.fields import stack_channels
from lsm_core.solvers.convergence import SolveFailed

COARSE = Plasticity(n_elements_x=20, n_elements_y=6, n_frames=4, stroke=1.0)


@pytest.fixture(scope="module")
def sample():
    return COARSE.generate(0)


def test_samples_are_what_the_variables_say(sample):
    assert set(sample) == {variable.name for variable in COARSE.variables}
    for variable in COARSE.variables:
        assert sample[variable.name].shape == variable.shape
        assert sample[variable.name].dtype == np.float32
        assert np.isfinite(sample[variable.name]).all()


def test_the_default_sizes_are_those_of_the_published_data():
    shape = Plasticity().shape
    assert shape.space == (101, 31, 20)
    assert (shape.n_inputs, shape.n_outputs) == (1, 4)


def test_a_sample_depends_on_its_seed_alone(sample):
    other, again = COARSE.generate(1), COARSE.generate(0)
    for name in sample:
        np.testing.assert_array_equal(sample[name], again[name])
    assert not np.array_equal(sample["die"], other["die"])


def test_position_less_displacement_is_the_grid_of_the_published_data(sample):
    state = sample["state"]
    grid = state[..., :2] - state[..., 2:]
    x, y = 0.35 - 2.5 * np.arange(21), 14.9 - 2.5 * np.arange(7)
    np.testing.assert_allclose(
        grid[..., 0], np.broadcast_to(x[:, None, None], (21, 7, 4)), atol=1e-5
    )
    np.testing.assert_allclose(grid[..., 1], np.broadcast_to(y[:, None], (21, 7, 4)), atol=1e-5)
    np.testing.assert_allclose(COARSE.coordinates["x"], x)
    np.testing.assert_allclose(COARSE.coordinates["y"], y)


def test_the_first_row_lies_under_the_die_and_the_last_is_clamped(sample):
    lowest = 14.9 - 1.0
    x, y = sample["state"][:, 0, -1, 0], sample["state"][:, 0, -1, 1]
    die = np.interp(-x, -COARSE.coordinates["x"], sample["die"])
    # Straight lines between 21 points of the die; the block is compressed by a millimetre.
    assert (y < lowest + die + 0.1).all()
    assert y.min() < lowest + 0.1
    assert not sample["state"][:, -1, :, 2:].any()


def test_the_die_descends_at_constant_speed(sample):
    depth = -sample["state"][..., 3].min(axis=(0, 1))
    np.testing.assert_allclose(depth, [0.25, 0.5, 0.75, 1.0], atol=0.06)
    np.testing.assert_allclose(COARSE.coordinates["time"], np.arange(1, 5) / 3000 / 4)


def test_the_stored_die_touches_the_block_at_its_lowest_knot(sample):
    assert sample["die"].min() >= 0
    np.testing.assert_allclose(
        sample["die"][[0, -1]], (sample["knots"] - sample["knots"].min())[[0, -1]], atol=1e-6
    )
    assert (sample["knots"] >= 0).all()
    assert (sample["knots"] <= 3).all()


def test_the_die_is_repeated_along_the_other_axes_of_the_input(sample):
    arrays = {name: values[None] for name, values in sample.items()}
    space = dict(zip(COARSE.space, COARSE.shape.space, strict=True))
    field = stack_channels(arrays, COARSE.with_role("input"), space)
    assert field.shape == (1, 21, 7, 4, 1)
    np.testing.assert_array_equal(field[0, :, 3, 2, 0], sample["die"])


def test_the_account_of_the_run_is_stored(sample):
    assert sample["work_balance"] == pytest.approx(1, abs=0.01)
    assert 0 < sample["hourglass_fraction"] < 0.05
    assert sample["n_steps"] > 100
    assert (sample["die_force"] > 0).all()


def test_a_run_whose_energy_does_not_add_up_is_no_sample(monkeypatch):
    forge = lsm_core.benchmarks.plasticity.forge

    def leak(problem):
        forged = forge(problem)
        return replace(forged, external_work=1.02 * forged.external_work)

    monkeypatch.setattr(lsm_core.benchmarks.plasticity, "forge", leak)
    with pytest.raises(SolveFailed, match="work balance"):
        COARSE.generate(0)


def test_a_block_with_folded_elements_is_no_sample(monkeypatch):
    forge = lsm_core.benchmarks.plasticity.forge

    def fold(problem):
        forged = forge(problem)
        position = forged.position.copy()
        position[-1, 0, -1] += 0.6 * (position[-1, 1, -2] - position[-1, 0, -1])
        return replace(forged, position=position)

    monkeypatch.setattr(lsm_core.benchmarks.plasticity, "forge", fold)
    with pytest.raises(SolveFailed, match="folded elements"):
        COARSE.generate(0)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"stroke": 15.0}, "below the height"),
        ({"n_elements_x": 0}, "needs elements"),
        ({"n_knots": 1}, "two knots"),
    ],
)
def test_impossible_parameters_are_refused(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        Plasticity(**parameters)


@pytest.mark.slow
def test_twenty_seeds_of_twenty_finish():
    benchmark = Plasticity(n_elements_x=50, n_elements_y=15)
    for seed in range(20):
        sample = benchmark.generate(seed)
        assert sample["work_balance"] == pytest.approx(1, abs=0.01), seed
        assert sample["hourglass_fraction"] < 0.03, seed
