"""Compiled loops over parts of their work, one for each of torch's threads."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor


def over_parts(loop: Callable[..., None], size: int, *given: Tensor | float | int) -> None:
    """Let a compiled loop go over `size` pieces of work of some tensors, which it may change.

    It takes their arrays, the numbers among what is given, a first piece and the one after its
    last. It must let go of Python's lock, and no piece may depend on another: then neither do the
    numbers on how many threads there are.
    """
    arrays = [each.detach().numpy() if isinstance(each, Tensor) else each for each in given]
    n_threads = min(torch.get_num_threads(), size)
    if n_threads == 1:
        loop(*arrays, 0, size)
        return
    parts = pairwise(size * part // n_threads for part in range(n_threads + 1))
    pool = _pool(os.getpid(), n_threads)
    for done in [pool.submit(loop, *arrays, *part) for part in parts]:
        done.result()


@cache
def _pool(process: int, n_threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process: a fork has none."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="kernel")
