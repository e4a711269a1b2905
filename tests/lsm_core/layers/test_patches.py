import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.layers.patches import join_patches, split_patches

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 4))


@settings(max_examples=40, deadline=None)
@given(st.lists(PAIRS, min_size=1, max_size=3), st.integers(1, 3))
def test_joining_patches_undoes_splitting(pairs, batch):
    patch_shape = tuple(width for _, width in pairs)
    space = tuple(count * width for count, width in pairs)
    field = torch.randn(batch, *space, 2)
    patches = split_patches(field, patch_shape)
    assert torch.equal(join_patches(patches, patch_shape, space), field)


def test_a_patch_holds_the_points_of_one_box():
    field = torch.arange(2 * 4 * 6.0).reshape(2, 4, 6, 1)
    patches = split_patches(field, (2, 3))
    assert patches.shape == (8, 6, 1)
    assert torch.equal(patches[1].flatten(), field[0, :2, 3:].flatten())
    assert torch.equal(patches[6].flatten(), field[1, 2:, :3].flatten())
