"""The loops of `trigonometric_series`, compiled: over a block of rows that stays in the cache.

Arrays are `(channel, row)`; weights are `(channel, 2 n_frequencies)`, sines before cosines. The
loops work on the channels from `first` up to `last`. The block is one array of known size, so that
the compiler sees that its lines are apart, and uses the processor's vectors.
"""

from typing import no_type_check

import numpy as np
from numba import njit

# Rows in a block; the block is 4 or 5 lines of so many numbers.
_ROWS = 512
# Sums may be taken in any order, which vectors need; nothing else is relaxed.
_RELAXED = {"reassoc", "contract"}


@njit(cache=True, nogil=True, fastmath=_RELAXED, error_model="numpy")
@no_type_check
def sum_series(sines, cosines, weights, series, start, first, last):
    """Set the sum over k = start, start + 1, ... of weights times sin(k x) and cos(k x)."""
    n_frequencies = weights.shape[1] // 2
    block = np.zeros((5, _ROWS), sines.dtype)
    for channel in range(first, last):
        for begin in range(0, sines.shape[1], _ROWS):
            end = min(begin + _ROWS, sines.shape[1])
            _fill(block, sines[channel, begin:end], cosines[channel, begin:end], start)
            for k in range(n_frequencies):
                by_sine, by_cosine = weights[channel, k], weights[channel, n_frequencies + k]
                for row in range(_ROWS):
                    total = by_sine * block[2, row] + by_cosine * block[3, row]
                    block[4, row] = total + (block[4, row] if k else 0)
                _turn(block)
            series[channel, begin:end] = block[4, : end - begin]


@njit(cache=True, nogil=True, fastmath=_RELAXED, error_model="numpy")
@no_type_check
def add_products(sines, cosines, outer, weights_gradient, start, first, last):
    """Add the sums over rows of outer times sin(k x) and cos(k x)."""
    n_frequencies = weights_gradient.shape[1] // 2
    block = np.zeros((5, _ROWS), sines.dtype)
    for channel in range(first, last):
        for begin in range(0, sines.shape[1], _ROWS):
            end = min(begin + _ROWS, sines.shape[1])
            _fill(block, sines[channel, begin:end], cosines[channel, begin:end], start)
            block[4] = 0
            block[4, : end - begin] = outer[channel, begin:end]
            for k in range(n_frequencies):
                by_sine, by_cosine = block[4, 0] * block[2, 0], block[4, 0] * block[3, 0]
                for row in range(1, _ROWS):
                    by_sine += block[4, row] * block[2, row]
                    by_cosine += block[4, row] * block[3, row]
                weights_gradient[channel, k] += by_sine
                weights_gradient[channel, n_frequencies + k] += by_cosine
                _turn(block)


@njit(cache=True, nogil=True, fastmath=_RELAXED, error_model="numpy", inline="always")
@no_type_check
def _fill(block, sines, cosines, start):
    """Lay out sin x, cos x, and sin(start x), cos(start x)."""
    size = len(sines)
    block[0, :size], block[1, :size] = sines, cosines
    block[2], block[3] = start * block[0], start * block[1] + (1 - start)


@njit(cache=True, nogil=True, fastmath=_RELAXED, error_model="numpy", inline="always")
@no_type_check
def _turn(block):
    """Go from sin(k x), cos(k x) to those of k + 1, by the addition theorem."""
    for row in range(_ROWS):
        sine, cosine = block[2, row], block[3, row]
        block[2, row] = sine * block[1, row] + cosine * block[0, row]
        block[3, row] = cosine * block[1, row] - sine * block[0, row]
