"""How far predictions are from their targets, on samples that a model was not trained on."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, linalg, nn

from lsm_core.layers.ranks import gathered, n_ranks, rank
from lsm_core.names import Statistics
from lsm_core.surrogates.surrogate import predict
from lsm_core.training.batches import Fields


@dataclass(frozen=True)
class Breakdown:
    """By what the error of a problem is broken down, besides the samples."""

    channels: tuple[str, ...] = ()
    """A name for each channel of the target; none to leave them together."""
    boundary_axes: tuple[int, ...] = ()
    """Axes of space that end somewhere; none on periodic problems and on scattered points."""


def relative_errors(
    model: nn.Module,
    parts: Iterable[Fields],
    batch_size: int,
    statistics: Statistics = "running",
) -> Float[Tensor, " samples"]:
    """Return the relative L2 error of every sample; ranks share the parts among them."""
    own = {
        number: relative_l2(
            predict(model, part.inputs, batch_size, statistics, part.weights),
            part.targets,
            part.weights,
        )
        for number, part in enumerate(parts)
        if number % n_ranks() == rank()
    }
    everything = {number: errors for some in gathered(own) for number, errors in some.items()}
    ordered = [everything[number] for number in sorted(everything)]
    return torch.cat(ordered) if ordered else torch.empty(0)


def sample_errors(
    model: nn.Module,
    parts: Iterable[Fields],
    batch_size: int,
    statistics: Statistics = "running",
) -> dict[str, Float[Tensor, " samples"]]:
    """Return what is kept of every sample, from which its errors can be computed again.

    `difference` and `target` are the norms whose ratio is the relative L2 error, `largest` is the
    largest absolute error. No samples, no entries.
    """
    found: dict[str, list[Tensor]] = {}
    for part in parts:
        predicted = predict(model, part.inputs, batch_size, statistics, part.weights)
        target, wrong = part.targets, predicted - part.targets
        if part.weights is not None:
            there = (part.weights > 0).unsqueeze(-1)
            largest = wrong.where(there, 0).flatten(1).abs().amax(1)
            target, wrong = (_weighted(each, part.weights) for each in (target, wrong))
        else:
            largest = largest_error(predicted, part.targets)
        found.setdefault("difference", []).append(linalg.vector_norm(wrong.flatten(1), dim=1))
        found.setdefault("target", []).append(linalg.vector_norm(target.flatten(1), dim=1))
        found.setdefault("largest", []).append(largest)
    return {name: torch.cat(values).double() for name, values in found.items()}


def chosen_samples(parts: Iterable[Fields], samples: Sequence[int]) -> Iterator[Fields]:
    """Yield some samples, each alone, by their numbers over all parts, in the order asked for."""
    found, first = {}, 0
    for part in parts:
        for sample in samples:
            if first <= sample < first + len(part):
                found[sample] = part[sample - first : sample - first + 1]
        first += len(part)
    yield from (found[sample] for sample in samples)


def evaluate(
    model: nn.Module,
    parts: Iterable[Fields],
    batch_size: int,
    statistics: Statistics = "running",
    breakdown: Breakdown | None = None,
) -> dict[str, float]:
    """Return errors over samples: relative L2 (mean, median, worst) and what the breakdown asks.

    An empty set of samples has no errors: the result is empty, too.
    """
    breakdown = breakdown or Breakdown()
    found: dict[str, list[Tensor]] = {}
    for part in parts:
        predicted = predict(model, part.inputs, batch_size, statistics, part.weights)
        for name, of_part in _errors(predicted, part.targets, breakdown, part.weights):
            found.setdefault(name, []).append(of_part)
    errors = {name: torch.cat(values) for name, values in found.items()}
    if not errors:
        return {}
    overall = errors.pop("rel_l2")
    return {
        "rel_l2": overall.mean().item(),
        "rel_l2_median": overall.median().item(),
        "rel_l2_max": overall.max().item(),
        "largest_error": errors.pop("largest_error").max().item(),
        **{name: values.mean().item() for name, values in errors.items()},
    }


def error_of_the_mean(
    mean: Float[Tensor, "*space n_outputs"], parts: Iterable[Fields]
) -> float | None:
    """Return the relative L2 error of always predicting the mean of the training targets.

    What a model must beat to have learned anything; None if there is nothing to predict.
    """
    errors = [
        relative_l2(mean.float().expand_as(part.targets), part.targets, part.weights)
        for part in parts
    ]
    return torch.cat(errors).mean().item() if errors else None


def _errors(
    predicted: Tensor, target: Tensor, breakdown: Breakdown, weights: Tensor | None
) -> Iterator[tuple[str, Tensor]]:
    yield "rel_l2", relative_l2(predicted, target, weights)
    if weights is not None:
        there = (weights > 0).unsqueeze(-1)
        predicted, target = predicted.where(there, 0), target.where(there, 0)
    yield "largest_error", largest_error(predicted, target)
    if len(breakdown.channels) > 1:
        by_channel = relative_l2_by_channel(predicted, target, weights)
        for number, name in enumerate(breakdown.channels):
            yield f"rel_l2_{name}", by_channel[:, number]
    if breakdown.boundary_axes:
        boundary = boundary_points(tuple(target.shape[1:-1]), breakdown.boundary_axes)
        yield "rel_l2_boundary", relative_error_on(boundary, predicted, target)
        yield "rel_l2_interior", relative_error_on(~boundary, predicted, target)


def relative_l2(
    predicted: Float[Tensor, "batch *field"],
    target: Float[Tensor, "batch *field"],
    weights: Float[Tensor, "batch *space"] | None = None,
) -> Float[Tensor, " batch"]:
    """Return |predicted - target|_2 / |target|_2 of every sample, over all points and channels.

    This is the figure that the paper's tables call MSE. With weights w of points the norm is that
    of sqrt(w) times the field: with volumes for weights the integral, and what has none is left
    out, whatever it is.
    """
    if weights is not None:
        predicted, target = (_weighted(each, weights) for each in (predicted, target))
    difference = linalg.vector_norm((predicted - target).flatten(1), dim=1)
    return difference / linalg.vector_norm(target.flatten(1), dim=1)


def _weighted(
    field: Float[Tensor, "batch *space channel"], weights: Float[Tensor, "batch *space"]
) -> Float[Tensor, "batch *space channel"]:
    """Return sqrt(w) u, and 0 where there is no point: zero times infinity would be no number."""
    roots = weights.to(field.device).sqrt().unsqueeze(-1)
    return torch.where(roots > 0, field, 0) * roots


def relative_l2_by_channel(
    predicted: Float[Tensor, "batch *space channel"],
    target: Float[Tensor, "batch *space channel"],
    weights: Float[Tensor, "batch *space"] | None = None,
) -> Float[Tensor, "batch channel"]:
    """Return the relative L2 error of every sample and channel, over all points."""
    if weights is not None:
        predicted, target = (_weighted(each, weights) for each in (predicted, target))
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
