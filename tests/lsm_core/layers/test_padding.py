import torch

from lsm_core.layers.padding import crop_to, pad_to, padded_shape


def test_each_axis_is_padded_to_its_own_divisor():
    assert padded_shape((41, 16, 7), (16, 16, 4)) == (48, 16, 8)


def test_cropping_undoes_padding_also_where_only_one_axis_is_padded():
    field = torch.randn(2, 5, 8, 3)
    padded = pad_to(field, (8, 8), "zero")
    assert padded.shape == (2, 8, 8, 3)
    assert padded[:, 5:].abs().max() == 0
    assert torch.equal(crop_to(padded, (5, 8)), field)


def test_circular_padding_continues_with_the_beginning():
    field = torch.randn(1, 5, 6, 1)
    padded = pad_to(field, (8, 8), "circular")
    assert torch.equal(padded[:, 5:, :6], field[:, :3])
    assert torch.equal(padded[:, :5, 6:], field[:, :, :2])
