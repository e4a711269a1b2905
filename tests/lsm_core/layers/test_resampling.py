import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.layers.resampling import resample

SIZES = st.lists(st.tuples(st.integers(2, 9), st.integers(1, 12)), min_size=1, max_size=3)


def linear_field(space):
    """Return 1 + x - 2 y + 3 z on the unit cube, with as many terms as there are axes."""
    field = torch.ones(space, dtype=torch.float64)
    for axis, size in enumerate(space):
        points = torch.linspace(0, 1, size, dtype=torch.float64)
        slope = (1, -2, 3)[axis]
        field = field + slope * points.reshape(-1, *[1] * (len(space) - 1 - axis))
    return field[None, ..., None]


@settings(max_examples=25, deadline=None)
@given(SIZES)
def test_linear_fields_are_resampled_exactly(sizes):
    old, new = zip(*sizes, strict=True)
    torch.testing.assert_close(
        resample(linear_field(old), new), linear_field(new), atol=1e-13, rtol=0
    )


def test_a_value_between_two_points_is_their_weighted_mean():
    field = torch.tensor([0.0, 8.0, 2.0]).reshape(1, 3, 1)
    expected = torch.tensor([0.0, 4.0, 8.0, 5.0, 2.0]).reshape(1, 5, 1)
    assert torch.equal(resample(field, (5,)), expected)


def test_one_point_is_spread_over_the_axis():
    field = torch.tensor([3.0]).reshape(1, 1, 1)
    assert torch.equal(resample(field, (4,)), torch.full((1, 4, 1), 3.0))


@pytest.mark.parametrize(("old", "new"), [((5,), (3,)), ((3, 4), (5, 2)), ((2, 3, 3), (3, 2, 4))])
def test_the_gradient_of_resampling_is_right(old, new):
    field = torch.randn(1, *old, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda field: resample(field, new), field, fast_mode=True)
