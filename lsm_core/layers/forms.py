"""Which of its two forms a layer takes: plain torch, or a kernel that is faster on a CPU.

Both give the same numbers. The plain form is the one to read, the one for GPUs, for mixed precision
and for torch's compiler, and the one that can be differentiated twice.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from lsm_core.layers.precision import is_mixed

_plain = ContextVar("_plain", default=False)


def suits_kernels(tensor: Tensor) -> bool:
    """Return whether a layer takes its kernel for this tensor, else its plain form."""
    return (
        not torch.compiler.is_compiling()
        and tensor.device.type == "cpu"
        and not _plain.get()
        and not is_mixed(tensor)
    )


@contextmanager
def plain_forms() -> Iterator[None]:
    """Let all layers take their plain forms in this block: to differentiate twice, to compare."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)
