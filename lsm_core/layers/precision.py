"""What stays in float32 where a step is of mixed precision: transforms, statistics and series.

Products of matrices and convolutions are brought to bfloat16 by torch, and come out of it.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

Given = ParamSpec("Given")
Result = TypeVar("Result")


def in_float32(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return the function, computed in float32 under autocast, forward and backward.

    The tensors that it is given by position are brought to float32 first.
    """

    @wraps(function)
    def whole(*given: Given.args, **named: Given.kwargs) -> Result:
        tensor = next(value for value in given if isinstance(value, Tensor))
        if not is_mixed(tensor):
            return function(*given, **named)
        with torch.autocast(tensor.device.type, enabled=False):
            return function(*map(_widened, given), **named)

    return whole


def is_mixed(tensor: Tensor) -> bool:
    """Return whether products on the device of a tensor are computed in lower precision."""
    kind = tensor.device.type
    return kind != "meta" and torch.is_autocast_enabled(kind)


def _widened(value: Any) -> Any:
    is_narrow = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if is_narrow else value
