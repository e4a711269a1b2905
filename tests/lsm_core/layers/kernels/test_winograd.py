import pytest
import torch

from lsm_core.layers.by_dimension import plain_convolution
from lsm_core.layers.kernels.winograd import (
    input_tiles,
    input_tiles_transposed,
    output_points,
    output_points_transposed,
    winograd_convolution,
)

SPACES = [(6,), (4, 6), (2, 4, 6)]


def inner_product(left, right):
    return (left * right).sum().item()


@pytest.mark.parametrize("space", SPACES)
def test_fewer_products_give_the_same_convolution(space):
    wide = torch.randn(2, *(size + 2 for size in space), 3, dtype=torch.float64)
    weight = torch.randn(5, 3, *[3] * len(space), dtype=torch.float64)
    torch.testing.assert_close(
        winograd_convolution(wide, weight), plain_convolution(wide, weight, None, padding=0)
    )


@pytest.mark.parametrize("space", SPACES)
def test_the_transposed_transforms_are_transposes(space):
    wide = torch.randn(2, *(size + 2 for size in space), 3, dtype=torch.float64)
    field = torch.randn(2, *space, 3, dtype=torch.float64)
    tiles = torch.randn_like(input_tiles(wide))
    assert inner_product(input_tiles(wide), tiles) == pytest.approx(
        inner_product(wide, input_tiles_transposed(tiles))
    )
    assert inner_product(output_points(tiles), field) == pytest.approx(
        inner_product(tiles, output_points_transposed(field))
    )
