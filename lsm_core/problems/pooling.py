"""Numbers of a whole sample, which models predict as fields: the mean over points is the number."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Float

from lsm_core.problems.fields import unstack_channels
from lsm_core.problems.variable import Variable


def unstack_targets(
    field: Float[np.ndarray, "samples *space channel"],
    variables: Sequence[Variable],
    space: Mapping[str, int],
) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """Return the variables that lie side by side in a field; one without points is pooled."""
    found: dict[str, np.ndarray[Any, np.dtype[Any]]] = {}
    first = 0
    for variable in variables:
        sizes = dict(zip(variable.dims, variable.shape, strict=True))
        n_channels = prod(n for dim, n in sizes.items() if dim not in space)
        part = field[..., first : first + n_channels]
        if any(dim in space for dim in sizes):
            found |= unstack_channels(part, [variable], space)
        else:
            pooled = part.mean(axis=tuple(range(1, 1 + len(space))))
            found[variable.name] = pooled.reshape(len(field), *variable.shape)
        first += n_channels
    return found
