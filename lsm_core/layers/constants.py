"""Arrays that never change: made once for each size, kind of number and device, and kept there.

A forward pass that made them anew would stop a GPU at every one, to bring it over from the host.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

# A plain dictionary, because torch sees through it when it compiles a model: what is in it is an
# input of the graph. Matrices of one axis each; a model on one grid uses some tens.
_kept: dict[tuple[Any, ...], Tensor] = {}


@runtime_checkable
class Constant(Protocol):
    """An array by its sizes, as a tensor of the numbers and on the device of another."""

    def __call__(self, *sizes: int | str | tuple[int, ...], like: Tensor) -> Tensor:
        """Return the tensor."""


def kept_on_device(make: Callable[..., np.ndarray]) -> Constant:
    """Return the function from sizes to an array as one to a tensor, made once and kept.

    Whole numbers and truth values stay what they are; others become those of the tensor `like`.
    """
    name = f"{make.__module__}.{make.__qualname__}"

    def constant(*sizes: int | str | tuple[int, ...], like: Tensor) -> Tensor:
        key = (name, sizes, like.dtype, like.device)
        if key not in _kept:
            # Said here, not around `_keep`: to remember it torch imports its compiler, for seconds.
            keep = torch.compiler.disable(_keep) if torch.compiler.is_compiling() else _keep
            keep(key, make)
        return _kept[key]

    return constant


def _keep(key: tuple[Any, ...], make: Callable[..., np.ndarray]) -> None:
    _, sizes, dtype, device = key
    array = np.ascontiguousarray(make(*sizes))
    is_exact = array.dtype.kind in "iub"
    # Whoever asks first may do so where gradients are never wanted; later ones may want them.
    with torch.inference_mode(False):
        tensor = torch.from_numpy(array)
        _kept[key] = tensor.to(device) if is_exact else tensor.to(device, dtype)


def forget() -> None:
    """Let all constants be made anew when they are needed: for tests of several devices."""
    _kept.clear()
