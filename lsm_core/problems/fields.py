"""From the named arrays of samples to the fields that models map."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from lsm_core.problems.variable import Variable


def stack_channels(
    arrays: Mapping[str, np.ndarray[Any, np.dtype[Any]]],
    variables: Sequence[Variable],
    space: Mapping[str, int],
) -> Float[np.ndarray, "samples *space channel"]:
    """Return variables side by side as channels of one field on the axes of `space`.

    Axes after those of space become channels. A variable that lacks some axes of space (a profile
    along one side) is repeated along them.
    """
    columns = [_as_field(arrays[v.name], v, space) for v in variables]
    return np.concatenate(columns, axis=-1)


def unstack_channels(
    field: Float[np.ndarray, "samples *space channel"],
    variables: Sequence[Variable],
    space: Mapping[str, int],
) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """Return the variables that lie side by side in a field: the inverse of stacking targets."""
    arrays, first = {}, 0
    for variable in variables:
        n_channels = prod(
            size
            for dim, size in zip(variable.dims, variable.shape, strict=True)
            if dim not in space
        )
        part = field[..., first : first + n_channels]
        arrays[variable.name] = part.reshape(len(field), *variable.shape)
        first += n_channels
    return arrays


def _as_field(
    values: Shaped[np.ndarray, "samples *shape"], variable: Variable, space: Mapping[str, int]
) -> Shaped[np.ndarray, "samples *space channel"]:
    own = [dim for dim in variable.dims if dim in space]
    if own != [dim for dim in space if dim in own] or tuple(own) != variable.dims[: len(own)]:
        raise ValueError(
            f"variable {variable.name} has axes {variable.dims}; those of space {tuple(space)} "
            "must come first, in this order"
        )
    n_samples = len(values)
    sizes = tuple(space[dim] if dim in own else 1 for dim in space)
    n_channels = prod(values.shape[1 + len(own) :])  # -1 would not do for no samples
    field = values.reshape(n_samples, *sizes, n_channels)
    return np.broadcast_to(field, (n_samples, *space.values(), n_channels))
