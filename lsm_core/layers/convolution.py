"""Convolution of a channels-last field, with a backward pass that is fast and keeps little."""

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from lsm_core.layers.boundary import Boundary, wrap
from lsm_core.layers.by_dimension import (
    convolution_field_gradient,
    convolution_weight_gradient,
    plain_convolution,
)

# Rows of a matrix product that sums over the points of a field: enough to run at full speed,
# few enough to stay in a core's cache.
_ROWS = 4096


def convolve(
    field: Float[Tensor, "batch *space channel"],
    weight: Float[Tensor, "feature channel *kernel"],
    bias: Float[Tensor, " feature"] | None = None,
    boundary: Boundary = "zero",
) -> Float[Tensor, "batch *space feature"]:
    """Return the 3-wide convolution of a field, with zeros or its other end beyond each end."""
    return convolve_prepared(_unchanged, (field,), weight, bias, boundary)


def convolve_prepared(
    prepare: Callable[..., Tensor],
    inputs: tuple[Tensor | None, ...],
    weight: Float[Tensor, "feature channel *kernel"],
    bias: Float[Tensor, " feature"] | None,
    boundary: Boundary,
) -> Float[Tensor, "batch *space feature"]:
    """Return the 3-wide convolution of `prepare(*inputs)`.

    The prepared field is not kept for the backward pass but computed again, so `prepare` must be
    cheap next to the convolution (a normalisation, an activation, an interpolation) and must
    give the same values the second time.
    """
    result: Tensor = _Convolution.apply(prepare, boundary, weight, bias, *inputs)
    return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        prepare: Callable[..., Tensor],
        boundary: Boundary,
        weight: Tensor,
        bias: Tensor | None,
        *inputs: Tensor | None,
    ) -> Tensor:
        ctx.prepare, ctx.boundary = prepare, boundary
        ctx.save_for_backward(weight, *inputs)
        field, padding = _widened(prepare(*inputs), boundary)
        return plain_convolution(field, weight, bias, padding)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, *inputs = ctx.saved_tensors
        _, _, needs_weight, needs_bias, *needs_inputs = ctx.needs_input_grad
        gradient = gradient.contiguous()
        leaves = [
            value if value is None else value.detach().requires_grad_(needed)
            for value, needed in zip(inputs, needs_inputs, strict=True)
        ]
        with torch.enable_grad():
            field, padding = _widened(ctx.prepare(*leaves), ctx.boundary)
        weight_gradient = bias_gradient = None
        if needs_weight:
            weight_gradient = _weight_gradient(field.detach(), gradient, weight, padding)
        if needs_bias:
            bias_gradient = gradient.flatten(0, -2).sum(0)
        input_gradients: list[Tensor | None] = [None] * len(leaves)
        if any(needs_inputs):
            outer = convolution_field_gradient(gradient, field.detach(), weight, padding)
            input_gradients = _through(field, leaves, outer)
        return None, None, weight_gradient, bias_gradient, *input_gradients


def _unchanged(field: Tensor) -> Tensor:
    return field


def _widened(field: Tensor, boundary: Boundary) -> tuple[Tensor, int]:
    """Return the field to convolve and how many zeros continue it."""
    return (wrap(field), 0) if boundary == "circular" else (field, 1)


def _through(
    field: Tensor, leaves: list[Tensor | None], outer: Tensor
) -> list[Tensor | None]:
    """Return the gradients of the leaves, given that of the field prepared from them."""
    if any(leaf is field for leaf in leaves):
        return [outer if leaf is field else None for leaf in leaves]
    wanted = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    gradients = iter(torch.autograd.grad(field, wanted, outer))
    return [
        next(gradients) if leaf is not None and leaf.requires_grad else None for leaf in leaves
    ]


def _weight_gradient(field: Tensor, gradient: Tensor, weight: Tensor, padding: int) -> Tensor:
    """Return the gradient with respect to the weight.

    The value for one tap is a matrix product over all points of the gradient and of the field
    shifted by that tap. Field and gradient are laid out with zeros between the rows, so that a
    shift is an offset in memory. On processors this is up to four times as fast as torch's own
    for channels-last fields; elsewhere torch's own is used.
    """
    if field.device.type != "cpu":
        return convolution_weight_gradient(gradient, field, weight, padding)
    n_features, n_channels, *kernel = weight.shape
    space = gradient.shape[1:-1]
    # One column of zeros ends one row and begins the next; a wrapped field brings its own two.
    wide = [size + 2 - padding for size in space]
    strides = [prod(wide[axis + 1 :]) for axis in range(len(wide))]
    points = _laid_out(field, wide, margin=sum(strides) if padding else 0)
    outer = _laid_out(gradient, wide, margin=0)
    n_rows = len(outer) - (2 - padding) * sum(strides)
    taps = [sum(map(int.__mul__, tap, strides)) for tap in product(range(3), repeat=len(space))]
    result = weight.new_empty(len(taps), n_features, n_channels)
    for tap, offset in enumerate(taps):
        _sum_of_products(outer[:n_rows], points[offset : offset + n_rows], result[tap])
    return result.reshape(*kernel, n_features, n_channels).movedim((-2, -1), (0, 1))


def _laid_out(field: Tensor, wide: list[int], margin: int) -> Tensor:
    """Return the points row by row, with zeros up to the wide shape and `margin` zeros before."""
    batch, *space, channels = field.shape
    if space == wide and not margin:
        return field.reshape(-1, channels)
    rows = field.new_zeros(margin + batch * prod(wide), channels)
    inner = rows[margin:].view(batch, *wide, channels)
    inner[(slice(None), *(slice(size) for size in space))] = field
    return rows


def _sum_of_products(left: Tensor, right: Tensor, result: Tensor) -> None:
    """Write left^T right, a sum over many rows, in blocks that several cores can share."""
    n_blocks = len(left) // _ROWS
    whole = n_blocks * _ROWS
    torch.mm(left[whole:].T, right[whole:], out=result)
    if n_blocks:
        blocks = left[:whole].view(n_blocks, _ROWS, -1).mT
        result += (blocks @ right[:whole].view(n_blocks, _ROWS, -1)).sum(0)
