from dataclasses import dataclass
from typing import Literal

import pytest

from lsm_core.layers.choices import check_choices


@dataclass(frozen=True)
class Paint:
    colour: Literal["red", "blue"]
    n_coats: int = 1


def test_a_wrong_choice_is_answered_with_the_right_ones():
    check_choices(Paint("red"))
    with pytest.raises(ValueError, match=r"^colour must be one of red, blue; got 'green'"):
        check_choices(Paint("green"))
    with pytest.raises(ValueError, match=r"^paint colour must be one of red, blue; got 'green'"):
        check_choices(Paint("green"), prefix="paint ")
