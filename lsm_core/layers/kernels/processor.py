"""What the processor at hand is good at."""

from functools import cache

import torch


@cache
def has_narrow_products() -> bool:
    """Return whether matrix products run at half the speed of torch's convolutions.

    MKL, which multiplies matrices for torch, takes AVX-512 on Intel's processors alone; oneDNN,
    which convolves, takes it wherever it is. On an EPYC (Zen 5): 111 and 280 GFLOP/s a core.
    """
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_f")) and "AMD" in str(found.get("cpu_name"))
