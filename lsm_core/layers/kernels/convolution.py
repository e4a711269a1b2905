"""Convolution of a channels-last field, with a backward pass that is fast and keeps little.

    y(p) = sum over taps t in {-1, 0, 1}^d of W(t) f(x)(p + t) + b

The prepared field f(x) (normalised, activated, upsampled) is not kept but computed again, which
saves the largest arrays of a network. The gradient of the weights is one matrix product a tap, in
place of torch's: 1.1 to 1.3 times as fast from 32 channels on, slower (0.7) on the smallest fields.
Where matrix products are slow beside convolutions it is torch's, 2 to 3 times as fast there.
No double backward; the width is 3, the stride 1.
"""

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from lsm_core.layers.by_dimension import convolution_gradients, plain_convolution
from lsm_core.layers.kernels.processor import has_narrow_products
from lsm_core.layers.kernels.winograd import winograd_convolution, winograd_gradients
from lsm_core.layers.padding import Boundary, wrap
from lsm_core.layers.shapes import Features

# Rows of a matrix product that sums over the points of a field: enough to run at full speed,
# few enough to stay in a core's cache while all taps of the kernel use them; and how many of them
# a thread gets at once at most, so that it seldom waits for the others.
_ROWS = 2048
_PARTS = 4
# Columns up to which all taps are set side by side in one such product.
_COLUMNS = 128
# Channels and points from which on fewer products outweigh the transforms that they need.
_MANY_CHANNELS = 128
_MANY_POINTS = 256


def convolve_prepared(
    prepare: Callable[..., Tensor],
    inputs: tuple[Tensor, ...],
    weight: Float[Tensor, "feature channel *kernel"],
    bias: Float[Tensor, " feature"] | None,
    boundary: Boundary,
) -> Features:
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
        *inputs: Tensor,
    ) -> Tensor:
        ctx.prepare, ctx.boundary = prepare, boundary
        ctx.save_for_backward(weight, *inputs)
        field = prepare(*inputs)
        if _fewer_products_pay(field, weight):
            result = winograd_convolution(_widened(field, boundary), weight)
            return result if bias is None else result.add_(bias)
        if boundary == "circular":
            return plain_convolution(wrap(field), weight, bias, padding=0)
        return plain_convolution(field, weight, bias, padding=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, *inputs = ctx.saved_tensors
        _, _, needs_weight, needs_bias, *needs_inputs = ctx.needs_input_grad
        gradient = gradient.contiguous()
        leaves = [
            value.detach().requires_grad_(needed)
            for value, needed in zip(inputs, needs_inputs, strict=True)
        ]
        with torch.enable_grad():
            field = ctx.prepare(*leaves)
        field_gradient, weight_gradient = _gradients(
            gradient, field.detach(), weight, ctx.boundary, (any(needs_inputs), needs_weight)
        )
        bias_gradient = gradient.flatten(0, -2).sum(0) if needs_bias else None
        input_gradients = _through(field, leaves, field_gradient)
        return None, None, weight_gradient, bias_gradient, *input_gradients


def _through(field: Tensor, leaves: list[Tensor], outer: Tensor | None) -> list[Tensor | None]:
    """Return the gradients of the leaves, given that of the field prepared from them."""
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    gradients = iter(torch.autograd.grad(field, wanted, outer) if wanted else ())
    return [next(gradients) if leaf.requires_grad else None for leaf in leaves]


def _convolves_faster(field: Tensor) -> bool:
    """Say whether torch's own convolution is faster than matrix products; in one precision only."""
    return field.dtype == torch.float32 and has_narrow_products()


def _fewer_products_pay(field: Tensor, weight: Tensor) -> bool:
    """Say whether Winograd's form is faster here."""
    batch, *space, n_channels = field.shape
    return (
        not _convolves_faster(field)
        and min(n_channels, len(weight)) >= _MANY_CHANNELS
        and not any(size % 2 for size in space)
        and batch * prod(space) >= _MANY_POINTS
    )


def _widened(field: Tensor, boundary: Boundary) -> Tensor:
    """Return the field with one more point at both ends of every axis."""
    if boundary == "circular":
        return wrap(field)
    return functional.pad(field, (0, 0) + (1, 1) * (field.ndim - 2))


def _unwidened(gradient: Tensor, boundary: Boundary) -> Tensor:
    """Return the transpose of `_widened`."""
    for axis in range(1, gradient.ndim - 1):
        size = gradient.shape[axis] - 2
        inner = gradient.narrow(axis, 1, size)
        if boundary == "circular":
            inner = inner.clone()
            inner.narrow(axis, size - 1, 1).add_(gradient.narrow(axis, 0, 1))
            inner.narrow(axis, 0, 1).add_(gradient.narrow(axis, size + 1, 1))
        gradient = inner
    return gradient


def _gradients(
    gradient: Tensor, field: Tensor, weight: Tensor, boundary: Boundary, needs: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients with respect to field and weight, where they are needed."""
    needs_field, needs_weight = needs
    field_gradient: Tensor | None = None
    weight_gradient: Tensor | None = None
    if _fewer_products_pay(field, weight):
        wide_gradient, weight_gradient = winograd_gradients(
            gradient, _widened(field, boundary), weight, needs_wide=needs_field
        )
        if wide_gradient is not None:
            field_gradient = _unwidened(wide_gradient, boundary)
        return field_gradient, weight_gradient
    padding = 1
    if boundary == "circular":
        field, padding = wrap(field), 0
    by_torch = needs_field, needs_weight and _convolves_faster(field)
    if any(by_torch):
        field_gradient, weight_gradient = convolution_gradients(
            gradient, field, weight, padding, by_torch
        )
    if needs_weight and weight_gradient is None:
        weight_gradient = _weight_gradient(field, gradient, weight, padding)
    if field_gradient is not None and boundary == "circular":
        field_gradient = _unwidened(field_gradient, boundary)
    return field_gradient, weight_gradient


def _weight_gradient(field: Tensor, gradient: Tensor, weight: Tensor, padding: int) -> Tensor:
    """Return the gradient with respect to the weight.

    The value for one tap is a matrix product over all points of the gradient and of the field
    shifted by that tap. Both are laid out with zeros between the rows, so that a shift is an
    offset in memory.
    """
    n_features, n_channels, *kernel = weight.shape
    # One column of zeros ends one row and begins the next; a wrapped field brings its own two.
    wide = [size + 2 - padding for size in gradient.shape[1:-1]]
    strides = [prod(wide[axis + 1 :]) for axis in range(len(wide))]
    points = _laid_out(field, wide, margin=sum(strides) if padding else 0)
    outer = _laid_out(gradient, wide, margin=0)
    n_rows = len(outer) - (2 - padding) * sum(strides)
    taps = [sum(map(int.__mul__, tap, strides)) for tap in product(range(3), repeat=len(wide))]
    if len(taps) * n_channels <= _COLUMNS:
        shifted = [points[offset : offset + n_rows] for offset in taps]
        sums = outer[:n_rows].T @ torch.cat(shifted, dim=1)
        by_tap = sums.view(n_features, len(taps), n_channels).movedim(1, 0)
    else:
        by_tap = _products_of_shifts(outer[:n_rows], points, taps)
    return by_tap.movedim(0, -1).unflatten(-1, kernel)


def _products_of_shifts(outer: Tensor, points: Tensor, offsets: list[int]) -> Tensor:
    """Return, for each offset, the product of `outer` transposed and the points from there on.

    The rows are shared out between the threads, because the products are too small to be.
    """
    n_threads, n_rows = torch.get_num_threads(), len(outer)
    n_parts = n_threads * max(1, min(_PARTS, n_rows // (_ROWS * n_threads)))
    shape = len(offsets), n_parts, outer.shape[1], points.shape[1]
    sums = points.new_zeros(shape)
    first = 0
    while first < n_rows:
        size = min(_ROWS, (n_rows - first) // n_parts)
        if size == 0:
            break
        last = first + n_parts * size
        left = outer[first:last].view(n_parts, size, -1).mT
        for offset, total in zip(offsets, sums, strict=True):
            right = points[first + offset : last + offset].view(n_parts, size, -1)
            total.baddbmm_(left, right)
        first = last
    for offset, total in zip(offsets, sums, strict=True):
        total[0].addmm_(outer[first:].T, points[first + offset : n_rows + offset])
    return sums.sum(1)


def _laid_out(field: Tensor, wide: list[int], margin: int) -> Tensor:
    """Return the points row by row, with zeros up to the wide shape and `margin` zeros before."""
    batch, *space, channels = field.shape
    if space == wide and not margin:
        return field.reshape(-1, channels)
    rows = field.new_empty(margin + batch * prod(wide), channels)
    rows[:margin] = 0
    inner = rows[margin:].view(batch, *wide, channels)
    for axis, size in enumerate(space, start=1):
        inner.narrow(axis, size, inner.shape[axis] - size).zero_()
    inner[(slice(None), *(slice(size) for size in space))] = field
    return rows
