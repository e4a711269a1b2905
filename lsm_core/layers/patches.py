"""Cutting a grid into equal boxes (patches) and putting them together again."""

from math import prod

from jaxtyping import Float
from torch import Tensor

from lsm_core.layers.shapes import Field


def split_patches(
    field: Field, patch_shape: tuple[int, ...]
) -> Float[Tensor, "patch point channel"]:
    """Return the points of every patch; patches of one sample follow each other."""
    batch, *space, channels = field.shape
    n_dims = len(space)
    pairs = zip(space, patch_shape, strict=True)
    cells = [n for size, width in pairs for n in (size // width, width)]
    counts_first = (0, *range(1, 2 * n_dims, 2), *range(2, 2 * n_dims + 1, 2), 2 * n_dims + 1)
    patches = field.reshape(batch, *cells, channels).permute(counts_first)
    return patches.reshape(-1, prod(patch_shape), channels)


def join_patches(
    patches: Float[Tensor, "patch point channel"],
    patch_shape: tuple[int, ...],
    space: tuple[int, ...],
) -> Field:
    """Undo `split_patches`."""
    n_dims = len(space)
    counts = [size // width for size, width in zip(space, patch_shape, strict=True)]
    boxes = patches.reshape(-1, *counts, *patch_shape, patches.shape[-1])
    pairs = [axis for i in range(1, n_dims + 1) for axis in (i, i + n_dims)]
    return boxes.permute(0, *pairs, 2 * n_dims + 1).reshape(-1, *space, patches.shape[-1])
