"""Moments of data that arrives in parts."""

from typing import Any

import numpy as np


class RunningStatistics:
    """Mean and standard deviation at every point, over samples that arrive in blocks.

    Blocks are merged by the update of Chan, Golub and LeVeque (1983), in float64: the result
    depends on the order of the blocks only by rounding, and not at all for a fixed order.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0
        self.mean = np.zeros(shape)
        self._squares = np.zeros(shape)

    def add(self, values: np.ndarray[Any, np.dtype[Any]]) -> None:
        """Take in more samples, `(samples, *shape)`."""
        added = len(values)
        if added == 0:
            return
        values = values.astype(np.float64)
        mean = values.mean(axis=0)
        total = self.count + added
        shift = mean - self.mean
        self._squares += ((values - mean) ** 2).sum(axis=0)
        self._squares += shift**2 * (self.count * added / total)
        self.mean += shift * (added / total)
        self.count = total

    @property
    def std(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the standard deviation with the divisor n - 1; zero for fewer than two samples."""
        return np.sqrt(self._squares / max(1, self.count - 1))
