from dataclasses import replace

import numpy as np
import pytest

from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_elements.die import Die, draw_die
from lsm_core.solvers.finite_elements.plasticity import Forging, forge
from lsm_core.solvers.finite_elements.return_mapping import ElasticPlastic

FLAT = Die(heights=np.zeros(8), length=50.0)
COARSE = Forging(die=FLAT, n_elements=(20, 6))
STEEL = ElasticPlastic()


def random_die(seed):
    return draw_die(np.random.default_rng(seed), n_knots=8, amplitude=3.0, length=50.0)


@pytest.fixture(scope="module")
def flat_forged():
    return forge(COARSE)


@pytest.fixture(scope="module")
def randomly_forged():
    return forge(replace(COARSE, die=random_die(0)))


def test_the_first_pressure_of_the_die_is_that_of_an_elastic_wave():
    # Without yield and sideways strain the wave is plane: pressure = density * speed of sound *
    # speed of the die, until it comes back from the bottom.
    strong = ElasticPlastic(yield_stress=1e6, poisson_ratio=0.0)
    there_and_back = 2 * COARSE.height / strong.wave_speed
    problem = replace(
        COARSE,
        material=strong,
        n_elements=(4, 60),
        stroke=0.9 * there_and_back * COARSE.speed,
        n_frames=1,
    )
    force = forge(problem).die_force[0]
    pressure = strong.density * strong.wave_speed * COARSE.speed
    assert force / COARSE.length == pytest.approx(pressure, rel=0.02)


def test_a_flat_die_needs_the_yield_stress_on_the_width_of_the_block(flat_forged):
    # Friction on the clamped bottom adds a few per cent.
    first_millimetre = flat_forged.die_force[2:5] / (STEEL.yield_stress * COARSE.length)
    assert first_millimetre == pytest.approx(1, abs=0.15)
    # In the end the block is shorter, and so wider or thicker, by height / (height - stroke).
    section = COARSE.length * COARSE.height / (COARSE.height - COARSE.stroke)
    assert flat_forged.die_force[-1] / (STEEL.yield_stress * section) == pytest.approx(1, abs=0.15)


def test_hardening_raises_the_force(flat_forged):
    harder = forge(
        replace(COARSE, material=ElasticPlastic(hardening_modulus=200.0), stroke=1.0, n_frames=5)
    )
    assert harder.die_force[-1] > 1.05 * flat_forged.die_force[4]


@pytest.mark.parametrize("block", ["flat_forged", "randomly_forged"])
def test_the_work_of_the_die_is_accounted_for(block, request):
    forged = request.getfixturevalue(block)
    assert forged.work_balance == pytest.approx(1, abs=0.01)
    assert 0 < forged.hourglass_fraction < 0.05
    assert forged.kinetic_energy < 0.01 * forged.external_work


@pytest.mark.parametrize("block", ["flat_forged", "randomly_forged"])
def test_the_metal_keeps_its_volume(block, request):
    forged = request.getfixturevalue(block)
    last = forged.position[-1]
    e, f = last[1:, 1:] - last[:-1, :-1], last[:-1, 1:] - last[1:, :-1]
    area = (e[..., 0] * f[..., 1] - e[..., 1] * f[..., 0]) / 2
    assert (area * forged.thickness).sum() == pytest.approx(50 * 15, rel=2e-3)


def test_the_top_follows_the_die_and_the_bottom_stays(randomly_forged):
    die = random_die(0)
    x, y = np.linspace(0, 50, 21), np.linspace(0, 15, 7)
    for frame, position in enumerate(randomly_forged.position, start=1):
        lowest = 15 - 4 * frame / 20
        gap = lowest + die.height(position[:, -1, 0]) - position[:, -1, 1]
        assert gap.min() > -1e-6
        np.testing.assert_array_equal(position[:, 0, 0], x)
        assert not position[:, 0, 1].any()
    assert abs(gap).max() < 0.01  # at the end the die touches the whole top
    assert (
        abs(randomly_forged.position[0] - np.stack(np.meshgrid(x, y, indexing="ij"), -1)).max()
        < 0.5
    )


def test_no_side_sinks_below_the_floor(flat_forged):
    assert flat_forged.position[..., 1].min() >= 0
    without = forge(replace(COARSE, floor=False))
    assert without.position[..., 1].min() < 0


def test_no_side_rises_above_the_die():
    # A die that is lowest at its ends, where material bulges out beyond it.
    die = Die(heights=np.array([0.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 0.0]), length=50.0)
    forged = forge(replace(COARSE, die=die))
    for frame, position in enumerate(forged.position, start=1):
        surface = 15 - 4 * frame / 20 + die.height(position[..., 0])
        assert (position[..., 1] < surface + 1e-3).all()


def test_folded_elements_are_counted(flat_forged):
    assert flat_forged.n_folded == 0
    position = flat_forged.position.copy()
    # A corner node pushed in beyond the diagonal, which leaves the area positive.
    position[-1, 0, -1] += 0.6 * (position[-1, 1, -2] - position[-1, 0, -1])
    assert replace(flat_forged, position=position).n_folded == 1


def test_a_mirrored_die_forges_a_mirrored_block():
    die = random_die(1)
    problem = replace(COARSE, die=die, stroke=1.0, n_frames=2)
    mirrored = replace(problem, die=replace(die, heights=die.heights[::-1].copy()))
    position, other = forge(problem).position, forge(mirrored).position[:, ::-1]
    np.testing.assert_allclose(50 - other[..., 0], position[..., 0], atol=1e-6)
    np.testing.assert_allclose(other[..., 1], position[..., 1], atol=1e-6)


def test_a_run_is_repeated_to_the_last_bit(randomly_forged):
    again = forge(replace(COARSE, die=random_die(0)))
    np.testing.assert_array_equal(again.position, randomly_forged.position)
    assert again.n_steps == randomly_forged.n_steps


def test_a_block_that_is_crushed_is_reported():
    # The die goes through the bottom; a hundred times as fast, so that it gets there soon.
    with pytest.raises(SolveFailed, match="forging"):
        forge(replace(COARSE, stroke=16.0, speed=3e5, n_frames=2))


def relative_displacement_error(forged, reference):
    n_x, n_y = forged.position.shape[1:3]
    at_shared = reference.position[
        :,
        :: (reference.position.shape[1] - 1) // (n_x - 1),
        :: (reference.position.shape[2] - 1) // (n_y - 1),
    ]
    x, y = np.linspace(0, 50, n_x), np.linspace(0, 15, n_y)
    undeformed = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    return np.linalg.norm(forged.position - at_shared) / np.linalg.norm(at_shared - undeformed)


@pytest.mark.slow
def test_refinement_brings_the_block_closer_to_a_finer_reference():
    problem = replace(COARSE, die=random_die(2))
    coarse, middle, fine, reference = (
        forge(replace(problem, n_elements=n_elements))
        for n_elements in ((10, 3), (20, 6), (40, 12), (80, 24))
    )
    errors = [relative_displacement_error(forged, reference) for forged in (coarse, middle, fine)]
    assert errors[0] > 1.4 * errors[1] > 1.96 * errors[2]
