import pytest
import torch
from torch.nn import functional

from lsm_core.layers.window_attention import (
    RelativePositionBias,
    WindowAttention,
    Windows,
    relative_position_index,
)

# Grids that the windows divide, that they do not, and that one window covers.
CUTS = [
    ((12,), (4,)),
    ((10,), (4,)),
    ((3,), (4,)),
    ((8, 6), (4, 3)),
    ((7, 9), (4, 4)),
    ((4, 9), (4, 4)),
    ((4, 6, 5), (2, 3, 2)),
]


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(("space", "window"), CUTS)
def test_joining_windows_undoes_splitting(space, window, shifted):
    windows = Windows(space=space, window=window, shifted=shifted)
    field = torch.randn(2, *space, 3)
    assert torch.equal(windows.join(windows.split(field)), field)


def attending_points(space, window, *, shifted):
    """Which points of the grid see which, from the mask and from where the points come to lie."""
    windows = Windows(space=space, window=window, shifted=shifted)
    n_points = torch.Size(space).numel()
    numbers = torch.arange(1, n_points + 1).reshape(1, *space, 1).double()
    places = windows.split(numbers)[..., 0].long()  # zero is padding
    sees = torch.zeros(n_points + 1, n_points + 1, dtype=torch.bool)
    for place, mask in zip(places, windows.mask(), strict=True):
        sees[place[:, None], place[None, :]] |= mask
    return sees


def test_points_see_their_window_and_neither_padding_nor_the_other_end():
    sees = attending_points((7,), (4,), shifted=False)
    groups = [0, 1, 1, 1, 1, 2, 2, 2]
    assert torch.equal(sees, torch.tensor(groups)[:, None] == torch.tensor(groups))


def test_shifted_windows_begin_in_the_middle_of_others():
    sees = attending_points((10,), (4,), shifted=True)
    # Padded to 12 and shifted by 2: points 1-2, 3-6, 7-10; the padding sees itself alone.
    groups = [0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    assert torch.equal(sees, torch.tensor(groups)[:, None] == torch.tensor(groups))


def test_the_mask_of_several_axes_is_that_of_each_axis():
    sees = attending_points((7, 6), (4, 4), shifted=True)[1:, 1:].reshape(7, 6, 7, 6)
    rows, columns = (
        attending_points((size,), (4,), shifted=True)[1:, 1:] for size in sees.shape[:2]
    )
    assert torch.equal(sees, rows[:, None, :, None] & columns[None, :, None, :])


@pytest.mark.parametrize("n_heads", [1, 2])
def test_one_window_without_bias_is_plain_softmax_attention(n_heads):
    torch.manual_seed(0)
    windows = Windows(space=(4, 3), window=(4, 3), shifted=True)
    layer = WindowAttention(6, n_heads, windows)
    torch.nn.init.zeros_(layer.position_bias.table)
    field = torch.randn(2, 4, 3, 6)

    def heads(linear):
        return linear(field.flatten(1, 2)).unflatten(2, (n_heads, -1)).transpose(1, 2)

    plain = functional.scaled_dot_product_attention(
        *map(heads, (layer.query, layer.key, layer.value))
    )
    expected = layer.output(plain.transpose(1, 2).flatten(2)).reshape(field.shape)
    torch.testing.assert_close(layer(field), expected)


def test_a_point_changes_the_result_in_its_shifted_window_alone():
    torch.manual_seed(0)
    layer = WindowAttention(4, 2, Windows(space=(10,), window=(4,), shifted=True))
    field = torch.randn(1, 10, 4)
    changed = field.clone()
    changed[:, 3] += 1
    difference = (layer(changed) - layer(field)).abs().amax(dim=(0, 2)) > 1e-6
    assert difference.nonzero().flatten().tolist() == [2, 3, 4, 5]


def test_the_bias_is_the_same_for_the_same_offset_only():
    index = relative_position_index((2, 3), (2, 3))
    points = [(row, column) for row in range(2) for column in range(3)]
    offsets = {
        (i, j): (a[0] - b[0], a[1] - b[1])
        for i, a in enumerate(points)
        for j, b in enumerate(points)
    }
    for first, offset in offsets.items():
        for second, other in offsets.items():
            assert (index[first] == index[second]) == (offset == other)
    assert index.max() == 3 * 5 - 1
    assert RelativePositionBias(Windows(space=(4, 6), window=(2, 3)), 4)().shape == (4, 6, 6)


def test_a_grid_smaller_than_the_window_uses_the_near_offsets_of_the_same_table():
    whole = relative_position_index((4, 4), (4, 4)).reshape(4, 4, 4, 4)
    part = relative_position_index((2, 3), (4, 4)).reshape(2, 3, 2, 3)
    assert torch.equal(part, whole[:2, :3, :2, :3])


def test_a_large_bias_picks_the_neighbour_at_that_offset():
    layer = WindowAttention(2, 1, Windows(space=(3,), window=(3,)))
    torch.nn.init.zeros_(layer.position_bias.table)
    layer.position_bias.table.data[1] = 100.0  # the query one point before the key
    for linear in (layer.value, layer.output):
        torch.nn.init.eye_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
    field = torch.randn(1, 3, 2)
    torch.testing.assert_close(layer(field)[:, :2], field[:, 1:])


@pytest.mark.parametrize(("space", "window"), [((5,), (2,)), ((3, 4), (2, 2))])
def test_gradients_are_those_of_finite_differences(space, window):
    torch.manual_seed(0)
    windows = Windows(space=space, window=window, shifted=True)
    layer = WindowAttention(4, 2, windows).double()
    field = torch.randn(1, *space, 4, dtype=torch.float64, requires_grad=True)
    table = layer.position_bias.table.detach().clone().requires_grad_()

    def run(field, table):
        return torch.func.functional_call(layer, {"position_bias.table": table}, field)

    assert torch.autograd.gradcheck(run, (field, table), fast_mode=True)


def test_weights_fit_another_grid():
    coarse = WindowAttention(4, 2, Windows(space=(8, 8), window=(4, 4), shifted=True))
    for space in ((11, 16), (3, 2)):
        other = WindowAttention(4, 2, Windows(space=space, window=(4, 4), shifted=True))
        other.load_state_dict(coarse.state_dict())
        assert other(torch.randn(1, *space, 4)).shape == (1, *space, 4)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="one size for each axis"):
        Windows(space=(8, 8), window=(4,))
    with pytest.raises(ValueError, match="4 channels cannot be shared out between 3 heads"):
        WindowAttention(4, 3, Windows(space=(8,), window=(4,)))
