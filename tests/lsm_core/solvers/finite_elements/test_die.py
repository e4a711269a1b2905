import numpy as np
import pytest

from lsm_core.solvers.finite_elements.die import (
    Die,
    draw_die,
    height_and_slope,
    hold_above_floor,
    push_below,
)

DIE = Die(heights=np.array([1.0, 3.0, 0.5, 2.0]), length=6.0)


def test_the_profile_goes_through_the_knots_above_its_lowest_one():
    np.testing.assert_allclose(DIE.height(DIE.knots), [0.5, 2.5, 0.0, 1.5])


def test_the_profile_stays_between_neighbouring_knots():
    heights = DIE.height(np.linspace(0, 2, 50))
    assert (np.diff(heights) > 0).all()
    assert heights.max() <= 2.5


def test_the_profile_goes_on_straight_beyond_the_ends():
    end, slope = height_and_slope(DIE.profile(), 6.0)
    assert end == pytest.approx(1.5)
    assert slope > 0.5
    assert height_and_slope(DIE.profile(), 7.0) == pytest.approx((end + slope, slope))
    beyond = DIE.height(np.array([-2.0, -1.0, 0.0]))
    assert beyond[0] - beyond[1] == pytest.approx(beyond[1] - beyond[2])


def test_the_compiled_profile_and_its_slope_are_those_of_the_curve():
    places = np.linspace(-0.99, 6.99, 37)
    compiled = np.array([height_and_slope(DIE.profile(), x) for x in places])
    np.testing.assert_allclose(compiled[:, 0], DIE.height(places), atol=1e-14)
    difference = (DIE.height(places + 1e-6) - DIE.height(places - 1e-6)) / 2e-6
    np.testing.assert_allclose(compiled[:, 1], difference, atol=1e-7)


def test_drawn_knots_are_uniform_up_to_the_amplitude():
    generator = np.random.default_rng(0)
    heights = np.stack(
        [draw_die(generator, n_knots=8, amplitude=3.0, length=50.0).heights for _ in range(500)]
    )
    assert heights.min() >= 0
    assert heights.max() <= 3
    assert heights.mean() == pytest.approx(1.5, abs=0.05)
    assert heights.var() == pytest.approx(9 / 12, rel=0.05)


def top_nodes(n_nodes=25):
    x = np.linspace(0.2, 5.8, n_nodes)
    position = np.stack([np.stack([x, x], axis=1), np.stack([0 * x, 0 * x + 10.0], axis=1)])
    return position, np.zeros_like(position), np.ones(position.shape[1:])


def test_nodes_inside_the_die_are_pushed_to_its_surface():
    position, velocity, mass = top_nodes()
    # Small depths: the correction is exact for a straight surface only.
    position[1, :, 1] = 4.0 + DIE.height(position[0, :, 1]) + 1e-3
    push_below(DIE.profile(), 4.0, position, velocity, mass, 1e-3)
    gap = 4.0 + DIE.height(position[0, :, 1]) - position[1, :, 1]
    assert abs(gap).max() < 2e-5
    assert not velocity[:, :, 0].any()


def test_contact_pushes_along_the_normal_without_friction():
    position, velocity, mass = top_nodes()
    position[1, :, 1] = 4.0 + DIE.height(position[0, :, 1]) + 1e-3
    slopes = np.array([height_and_slope(DIE.profile(), x)[1] for x in position[0, :, 1]])
    force = push_below(DIE.profile(), 4.0, position, velocity, mass, 1e-3)
    np.testing.assert_allclose(velocity[0, :, 1], -slopes * velocity[1, :, 1], atol=1e-12)
    assert (velocity[1, :, 1] < 0).all()
    assert force == pytest.approx(velocity[1, :, 1].sum() / 1e-3)


def test_nodes_below_the_die_are_left_alone():
    position, velocity, mass = top_nodes()
    position[1, :, 1] = 4.0 + DIE.height(position[0, :, 1]) - 1e-9
    before = position.copy()
    assert push_below(DIE.profile(), 4.0, position, velocity, mass, 1e-3) == 0
    np.testing.assert_array_equal(position, before)


def test_sides_that_rise_past_the_die_are_pushed_down_and_the_inside_is_not():
    position, velocity, mass = (np.repeat(values, 2, axis=-1) for values in top_nodes())
    position[1] = 9.0
    flat = Die(heights=np.zeros(4), length=6.0)
    push_below(flat.profile(), 8.0, position, velocity, mass, 1e-3)
    # Four rows: the clamped bottom, two rows inside, the top.
    np.testing.assert_allclose(position[1, [0, -1]], [[9, 8, 8, 8]] * 2)
    np.testing.assert_allclose(position[1, 1:-1], [[9, 9, 9, 8]] * 23)


def test_the_floor_stops_sinking_sides_and_nothing_else():
    position = np.zeros((2, 3, 3))
    position[1] = [[0.0, -0.1, 0.5], [0.0, -0.1, 0.5], [0.0, 0.2, -0.3]]
    velocity = np.full_like(position, -1.0)
    hold_above_floor(position, velocity, 0.1)
    np.testing.assert_allclose(position[1], [[0, 0, 0.5], [0, -0.1, 0.5], [0, 0.2, 0]])
    np.testing.assert_allclose(velocity[1], [[-1, 0, -1], [-1, -1, -1], [-1, -1, 2]])
    assert (velocity[0] == -1).all()
