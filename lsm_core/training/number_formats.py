"""In which numbers a GPU multiplies what is in float32.

Torch lets convolutions of float32 fields round their factors to ten bits (TF32) unless it is told
not to. Here float32 means float32. `tf32` is for convolutions alone: Fourier transforms and
wavelets are products of matrices, and with ten bits a field of mean 100 and deviation 1 would lose
its second digit in every one of them.
"""

from typing import Any

import torch

from lsm_core.names import Precision


def set_number_formats(precision: Precision) -> None:
    """Let this process multiply as a precision says, whatever was set before."""
    convolutions: Any = torch.backends.cudnn
    convolutions.conv.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cuda.matmul.fp32_precision = "ieee"


def number_formats() -> dict[str, str]:
    """Return what holds, to be recorded with a result."""
    convolutions: Any = torch.backends.cudnn
    return {
        "float32_convolutions": convolutions.conv.fp32_precision,
        "float32_products": torch.backends.cuda.matmul.fp32_precision,
    }
