"""Weights of a run on one problem, brought to the shapes that another problem's model has.

What has the same name and shape goes over. A kernel of a convolution goes over to another
dimension: repeated along a new axis and divided by its length, or summed along one that is gone,
so that a field that is constant along that axis is answered as before. The body of a model on
points is the model on a grid, both ways. All else begins anew.
"""

from collections.abc import Mapping

from torch import Tensor

from lsm_core.training.fine_tuning import ADAPTED, OF_THE_DATA

LEAST_SHARE = 0.25
"""Of all numbers: with less in common a model does not start from the other one."""

Weights = Mapping[str, Tensor]


def suits(weights: Weights, own: Weights) -> bool:
    """Return whether weights can be adopted as they are: lift and head alone may differ."""
    given, wanted = _operator(weights), _operator(own)
    differing = (n for n, w in wanted.items() if n not in given or given[n].shape != w.shape)
    return given.keys() <= wanted.keys() and all(n.split(".")[0] in ADAPTED for n in differing)


def brought_over(weights: Weights, own: Weights) -> dict[str, Tensor]:
    """Return weights of the names and shapes of `own`, taken over where they can be.

    A ValueError if too little is in common to call it a start.
    """
    given = _operator(weights)
    from_points, to_points = _is_on_points(given), _is_on_points(_operator(own))
    taken: dict[str, Tensor] = {}
    for name, value in own.items():
        for other in _counterparts(_without_wrapper(name), from_points, to_points):
            fitting = _in_shape(given[other], value) if other in given else None
            if fitting is not None and not name.startswith(OF_THE_DATA):
                taken.setdefault(name, fitting)
    # A layer begins anew as a whole: a bias that fits by chance goes with its weight.
    anew = {name.rpartition(".")[0] for name in own if name not in taken}
    taken = {n: value for n, value in taken.items() if n.rpartition(".")[0] not in anew}
    n_taken, n_all = (sum(v.numel() for v in some.values()) for some in (taken, own))
    if n_taken < LEAST_SHARE * n_all:
        raise ValueError(
            f"the source has {n_taken} of the {n_all} weights that are needed here, the others "
            "are tied to its grid or dimension; train from the beginning, or from another model"
        )
    return {n: taken.get(n, value) for n, value in own.items() if not n.startswith(OF_THE_DATA)}


def _operator(weights: Weights) -> dict[str, Tensor]:
    return {_without_wrapper(n): w for n, w in weights.items() if not n.startswith(OF_THE_DATA)}


def _without_wrapper(name: str) -> str:
    """Return a name without the surrogate and the rollout around the operator."""
    while name.startswith("model."):
        name = name.removeprefix("model.")
    return name


def _is_on_points(weights: Weights) -> bool:
    return any(name.startswith("deformation.") for name in weights)


def _counterparts(name: str, from_points: bool, to_points: bool) -> tuple[str, ...]:
    """Return what a weight may be called in the source.

    The body of points is called `network`. It is the whole model on a grid, or the part of it that
    is called so there, too.
    """
    if from_points == to_points:
        return (name,)
    if to_points:
        if not name.startswith("network."):
            return ()
        return (name, name.removeprefix("network.0."), name.removeprefix("network."))
    wrapped = (f"network.0.{name}", f"network.{name}")
    return (name, *wrapped) if name.startswith("network.") else wrapped


def _in_shape(weight: Tensor, like: Tensor) -> Tensor | None:
    """Return a weight in the shape of another, of a convolution also in another dimension."""
    if weight.shape == like.shape:
        return weight.clone()
    sizes = {*weight.shape[2:], *like.shape[2:]}
    is_kernel = min(weight.ndim, like.ndim) > 2 and weight.shape[:2] == like.shape[:2]
    if not is_kernel or len(sizes) != 1 or weight.ndim == like.ndim:
        return None
    moved = weight
    while moved.ndim > like.ndim:
        moved = moved.sum(-1)
    while moved.ndim < like.ndim:
        size = weight.shape[-1]
        moved = moved.unsqueeze(-1).expand(*moved.shape, size) / size
    return moved.clone()
