import pytest
import torch

from lsm_core.evaluation.edges import edge_ratio, points_at_edges


def test_two_points_on_each_side_of_an_edge_belong_to_it() -> None:
    near = points_at_edges((16,), (8,))
    assert near.nonzero().flatten().tolist() == [0, 1, 6, 7, 8, 9, 14, 15]


def test_the_end_of_a_grid_that_patches_do_not_fill_is_an_edge() -> None:
    assert points_at_edges((11,), (8,)).nonzero().flatten().tolist() == [0, 1, 6, 7, 8, 9, 10]


def test_a_point_is_at_an_edge_of_any_axis() -> None:
    near = points_at_edges((8, 16), (8, 16))
    assert near.sum() == 8 * 16 - 4 * 12
    assert not near[2:6, 2:14].any()


def test_errors_that_are_alike_everywhere_show_no_edge_and_a_spike_does() -> None:
    target = torch.zeros(3, 32, 2)
    assert edge_ratio(target + 0.1, target, (8,)) == pytest.approx(1.0)
    spiked = target + 0.1
    spiked[:, 0] = 1.0
    assert edge_ratio(spiked, target, (8,)) == pytest.approx(1 + 9 / 16)
