from typing import Literal

import pytest

from lsm_core.layers.choices import check_choice


def test_a_wrong_choice_is_answered_with_the_right_ones():
    check_choice("colour", "red", Literal["red", "blue"])
    with pytest.raises(ValueError, match="colour must be one of red, blue; got 'green'"):
        check_choice("colour", "green", Literal["red", "blue"])
