"""Attention within the windows of a grid (Swin Transformer), in any dimension.

A grid is cut into equal boxes, the windows, and each point attends to the points of its own. Every
other layer shifts the windows by half their size, so that neighbours across an edge meet. The shift
is cyclic, which makes windows of the far ends of the grid: a mask keeps those parts apart.
Reference: Z. Liu et al., Swin Transformer, ICCV 2021.
"""

from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lsm_core.layers.head import Head
from lsm_core.layers.padding import crop_to, pad_to, padded_shape
from lsm_core.layers.patches import join_patches, split_patches
from lsm_core.layers.shapes import Field


@dataclass(frozen=True, kw_only=True)
class Windows:
    """The cut of a grid into windows of one shape, shifted by half of it or not.

    A window is not longer than an axis, and an axis that it covers is not shifted. A grid that the
    windows do not divide is padded.
    """

    space: tuple[int, ...]
    window: tuple[int, ...]
    shifted: bool = False

    def __post_init__(self) -> None:
        if len(self.window) != len(self.space) or min(self.window) < 1:
            raise ValueError(f"window {self.window} has not one size for each axis of {self.space}")

    @property
    def padded(self) -> tuple[int, ...]:
        """Return the shape of the grid that the windows divide."""
        return padded_shape(self.space, self.used)

    @property
    def used(self) -> tuple[int, ...]:
        """Return the shape of the windows on this grid."""
        return tuple(map(min, self.window, self.space))

    @property
    def shift(self) -> tuple[int, ...]:
        """Return by how many points the windows are shifted along each axis."""
        return tuple(
            width // 2 if self.shifted and size > width else 0
            for size, width in zip(self.padded, self.used, strict=True)
        )

    def split(self, field: Field) -> Float[Tensor, "window point channel"]:
        """Return the points of every window; windows of one sample follow each other."""
        padded = pad_to(field, self.padded, "zero")
        if any(self.shift):
            padded = padded.roll([-points for points in self.shift], self._axes())
        return split_patches(padded, self.used)

    def join(self, points: Float[Tensor, "window point channel"]) -> Field:
        """Undo `split`."""
        field = join_patches(points, self.used, self.padded)
        if any(self.shift):
            field = field.roll(self.shift, self._axes())
        return crop_to(field, self.space)

    def mask(self) -> Bool[Tensor, "window point point"]:
        """Return which points of a window belong together: neighbours on the grid, not padding."""
        labels = torch.ones(self.space)  # what `split` pads has the label 0
        for axis, (size, shift) in enumerate(zip(self.space, self.shift, strict=True)):
            brought_around = torch.arange(size) < shift
            other_axes = [1] * (len(self.space) - axis - 1)
            labels = 2 * labels + brought_around.view(-1, *other_axes)
        points = self.split(labels[None, ..., None])
        return points == points.mT

    def _axes(self) -> list[int]:
        return list(range(1, len(self.space) + 1))


class RelativePositionBias(nn.Module):
    """One learned number for each offset between two points of a window, and for each head."""

    index: Tensor

    def __init__(self, windows: Windows, n_heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(prod(2 * n - 1 for n in windows.window), n_heads))
        nn.init.trunc_normal_(self.table, std=0.02)
        index = relative_position_index(windows.used, windows.window)
        self.register_buffer("index", index, persistent=False)

    def forward(self) -> Float[Tensor, "head point point"]:
        """Return what is added to the scores of every two points."""
        return self.table[self.index].movedim(-1, 0)


def relative_position_index(
    used: tuple[int, ...], window: tuple[int, ...]
) -> Int[Tensor, "point point"]:
    """Return the row of a table of offsets for every two points.

    The table is that of a whole window, so that it fits any grid; `used` is the part of a window
    that lies on the grid.
    """
    axes = torch.meshgrid(*map(torch.arange, used), indexing="ij")
    positions = torch.stack(axes, dim=-1).flatten(0, -2)
    offsets = positions[:, None] - positions[None, :]  # (point, point, axis)
    index = torch.zeros_like(offsets[..., 0])
    for axis, width in enumerate(window):
        index = index * (2 * width - 1) + offsets[..., axis] + width - 1
    return index


class WindowAttention(nn.Module):
    """Attention of several heads within windows, with a bias by relative position.

    It works on the grid that it was made for; its weights fit any grid. Keys have no bias, which
    would add the same number to all scores of a query and so change nothing.
    """

    mask: Tensor | None

    def __init__(self, width: int, n_heads: int, windows: Windows) -> None:
        super().__init__()
        if n_heads < 1 or width % n_heads:
            raise ValueError(f"{width} channels cannot be shared out between {n_heads} heads")
        self.n_heads, self.windows = n_heads, windows
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.position_bias = RelativePositionBias(windows, n_heads)
        one_part = windows.padded == windows.space and not any(windows.shift)
        self.register_buffer("mask", None if one_part else windows.mask(), persistent=False)

    def forward(self, field: Field) -> Field:
        """Return, for each point, a mean of the values in its window."""
        points = self.windows.split(field)
        query = self._by_head(self.query(points)) * (field.shape[-1] // self.n_heads) ** -0.5
        scores = query @ self._by_head(self.key(points)).mT  # (window, head, point, point)
        scores = scores + self.position_bias()
        if self.mask is not None:
            apart = ~self.mask.unsqueeze(1)
            scores = scores.unflatten(0, (len(field), -1)).masked_fill(apart, -torch.inf)
            scores = scores.flatten(0, 1)
        means = torch.softmax(scores, dim=-1) @ self._by_head(self.value(points))
        return self.windows.join(self.output(means.transpose(1, 2).flatten(2)))

    def _by_head(
        self, points: Float[Tensor, "window point channel"]
    ) -> Float[Tensor, "window head point head_width"]:
        return points.unflatten(2, (self.n_heads, -1)).transpose(1, 2)


class WindowLayer(nn.Module):
    """Attention within windows and a perceptron, each normalised before and added to its input."""

    def __init__(self, width: int, n_hidden: int, n_heads: int, windows: Windows) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = WindowAttention(width, n_heads, windows)
        self.perceptron_norm = nn.LayerNorm(width)
        self.perceptron = Head(width, n_hidden, width)

    def forward(self, tokens: Field) -> Field:
        """Return the tokens after the layer."""
        tokens = tokens + self.attention(self.attention_norm(tokens))
        return tokens + self.perceptron(self.perceptron_norm(tokens))


def window_layers(
    n_layers: int, width: int, n_hidden: int, n_heads: int, space: tuple[int, ...], window: int
) -> nn.Sequential:
    """Return layers on one grid, with windows of as many points along every axis.

    Every other layer shifts the windows, so that neighbours across an edge meet.
    """
    shape = (window,) * len(space)
    cuts = [Windows(space=space, window=shape, shifted=i % 2 == 1) for i in range(n_layers)]
    return nn.Sequential(*(WindowLayer(width, n_hidden, n_heads, windows) for windows in cuts))
