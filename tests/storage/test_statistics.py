import numpy as np
import pytest

from storage.statistics import RunningStatistics


@pytest.mark.parametrize("cuts", [[], [1], [3, 3, 7], [50, 99]])
def test_blocks_give_the_moments_of_the_whole(cuts: list[int]) -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, (100, 4, 5)).astype(np.float32)
    statistics = RunningStatistics((4, 5))
    for block in np.split(values, cuts):
        statistics.add(block)
    whole = values.astype(np.float64)
    np.testing.assert_allclose(statistics.mean, whole.mean(0), rtol=1e-13)
    np.testing.assert_allclose(statistics.std, whole.std(0, ddof=1), rtol=1e-12)


def test_a_large_offset_does_not_drown_a_small_deviation() -> None:
    values = 1e8 + np.array([[0.0], [1.0], [2.0]])
    statistics = RunningStatistics((1,))
    for value in values:
        statistics.add(value[None])
    assert statistics.std[0] == pytest.approx(1.0)
