import numpy as np
import pytest

from lsm_core.problems.fields import stack_channels
from lsm_core.problems.variable import Variable

SPACE = {"x": 3, "y": 2}


def variable(name: str, dims: tuple[str, ...], shape: tuple[int, ...]) -> Variable:
    return Variable(name=name, dims=dims, shape=shape, role="input")


def test_axes_after_space_become_channels_in_order() -> None:
    values = np.arange(2 * 3 * 2 * 4, dtype=np.float32).reshape(2, 3, 2, 4)
    mask = np.ones((2, 3, 2), np.float32)
    field = stack_channels(
        {"history": values, "mask": mask},
        [variable("history", ("x", "y", "time"), (3, 2, 4)), variable("mask", ("x", "y"), (3, 2))],
        SPACE,
    )
    assert field.shape == (2, 3, 2, 5)
    np.testing.assert_array_equal(field[..., :4], values)
    np.testing.assert_array_equal(field[..., 4], mask)


def test_no_samples_are_a_field_of_none() -> None:
    history = variable("history", ("x", "y", "time"), (3, 2, 4))
    field = stack_channels({"history": np.empty((0, 3, 2, 4), np.float32)}, [history], SPACE)
    assert field.shape == (0, 3, 2, 4)


def test_a_profile_is_repeated_along_the_axes_it_lacks() -> None:
    profile = np.array([[1.0, 2.0, 3.0]], np.float32)
    field = stack_channels({"die": profile}, [variable("die", ("x",), (3,))], SPACE)
    np.testing.assert_array_equal(field[0, :, :, 0], [[1, 1], [2, 2], [3, 3]])


def test_axes_in_the_wrong_order_are_refused() -> None:
    values = np.zeros((1, 2, 3), np.float32)
    with pytest.raises(ValueError, match="must come first, in this order"):
        stack_channels({"u": values}, [variable("u", ("y", "x"), (2, 3))], SPACE)


def test_a_variable_needs_a_size_for_every_axis() -> None:
    with pytest.raises(ValueError, match="2 dimensions"):
        variable("u", ("x", "y"), (3,))
