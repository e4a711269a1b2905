"""What training makes small: relative errors of the values, and of their differences."""

import torch
from jaxtyping import Float
from torch import Tensor, linalg

from lsm_core.evaluation.evaluate import relative_l2

Grid = tuple[bool, ...]
"""Of each axis of space whether it is periodic; no axes if points are in no order."""

FLAT = 1e-6
"""Differences below this part of a field's norm are taken for it: the field is constant there."""


def summed_relative_l2(
    predicted: Float[Tensor, "batch *field"],
    target: Float[Tensor, "batch *field"],
    weights: Float[Tensor, "batch *space"] | None = None,
) -> Float[Tensor, ""]:
    """Return the sum over the batch of each sample's relative L2 error, in physical units.

    The sum, not the mean: the released training scripts use it, and with Adam only its ratio to
    the weight decay matters.
    """
    return relative_l2(predicted, target, weights).sum()


def summed_derivative_error(
    predicted: Float[Tensor, "batch *space channel"],
    target: Float[Tensor, "batch *space channel"],
    grid: Grid,
) -> Float[Tensor, ""]:
    """Return the sum over the batch of each sample's relative L2 error in its differences.

    They are taken between neighbours along each axis, the ends of a periodic one included, and the
    errors of the axes are averaged: the distance of the points, which may differ from axis to axis,
    cancels. Zero without axes.
    """
    total = predicted.new_zeros(())
    least = FLAT * linalg.vector_norm(target.flatten(1), dim=1)
    for axis, is_periodic in enumerate(grid, start=1):
        wanted = _differences(target, axis, is_periodic)
        wrong = _differences(predicted - target, axis, is_periodic)
        scale = linalg.vector_norm(wanted.flatten(1), dim=1).maximum(least)
        total = total + (linalg.vector_norm(wrong.flatten(1), dim=1) / scale).sum()
    return total / max(1, len(grid))


def _differences(field: Tensor, axis: int, is_periodic: bool) -> Tensor:
    return torch.diff(field, dim=axis, append=field.narrow(axis, 0, 1) if is_periodic else None)
