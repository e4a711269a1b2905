"""How far a prediction is from its target."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, linalg


def relative_l2(
    predicted: Float[Tensor, "batch *field"], target: Float[Tensor, "batch *field"]
) -> Float[Tensor, " batch"]:
    """Return |predicted - target|_2 / |target|_2 of every sample, over all points and channels.

    This is the figure that the paper's tables call MSE.
    """
    difference = linalg.vector_norm((predicted - target).flatten(1), dim=1)
    return difference / linalg.vector_norm(target.flatten(1), dim=1)


def relative_l2_by_channel(
    predicted: Float[Tensor, "batch *space channel"],
    target: Float[Tensor, "batch *space channel"],
) -> Float[Tensor, "batch channel"]:
    """Return the relative L2 error of every sample and channel, over all points."""
    difference = linalg.vector_norm((predicted - target).flatten(1, -2), dim=1)
    return difference / linalg.vector_norm(target.flatten(1, -2), dim=1)


def relative_error_on(
    points: Bool[Tensor, "*space"],
    predicted: Float[Tensor, "batch *space channel"],
    target: Float[Tensor, "batch *space channel"],
) -> Float[Tensor, " batch"]:
    """Return the root mean square error on some points over the root mean square of the target.

    The target's is over all points: on a boundary where it vanishes the error stays finite. Over
    all points it is the relative L2 error.
    """
    error = (predicted - target)[:, points].square().flatten(1).mean(1)
    return (error / target.square().flatten(1).mean(1)).sqrt()


def largest_error(
    predicted: Float[Tensor, "batch *field"], target: Float[Tensor, "batch *field"]
) -> Float[Tensor, " batch"]:
    """Return max |predicted - target| of every sample, in the target's unit."""
    return (predicted - target).flatten(1).abs().amax(1)


def boundary_points(space: tuple[int, ...], axes: tuple[int, ...]) -> Bool[Tensor, "*space"]:
    """Return which points of a grid lie at an end of one of the axes."""
    points = torch.zeros(space, dtype=torch.bool)
    for axis in axes:
        points.select(axis, 0).fill_(True)
        points.select(axis, -1).fill_(True)
    return points
