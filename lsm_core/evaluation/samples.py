"""What can be said of a run from the errors of its samples alone, without the model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Errors = Mapping[str, NDArray[Any]]
"""Of every sample: `difference` and `target`, two norms, and `largest`, an absolute error."""
QUANTILES = (0.1, 0.5, 0.9, 0.99)
ROUNDING = 1e-5
"""Relative difference between figures that are computed in another order."""


def relative_of(errors: Errors) -> NDArray[np.float64]:
    """Return the relative L2 error of every sample."""
    relative: NDArray[np.float64] = np.asarray(errors["difference"] / errors["target"], float)
    return relative


def recomputed(errors: Errors) -> dict[str, float]:
    """Return the figures of a result that follow from the errors of its samples."""
    relative = relative_of(errors)
    return {
        "rel_l2": float(relative.mean()),
        # Torch's median of an even number is the lower of the two in the middle.
        "rel_l2_median": float(np.sort(relative)[(len(relative) - 1) // 2]),
        "rel_l2_max": float(relative.max()),
        "largest_error": float(errors["largest"].max()),
    }


def quantiles(errors: Errors) -> dict[str, float]:
    """Return quantiles of the relative error over the samples."""
    relative = relative_of(errors)
    return {f"{part:.0%}": float(np.quantile(relative, part)) for part in QUANTILES}


def worst_samples(errors: Errors, n_samples: int) -> list[int]:
    """Return the numbers of the samples with the largest relative errors, the worst first."""
    order = np.argsort(-relative_of(errors), kind="stable")
    return [int(sample) for sample in order[:n_samples]]


def disagreements(figures: Mapping[str, float], errors: Errors) -> list[str]:
    """Return what a result says and its samples do not, in a sentence each; none if they agree."""
    found = recomputed(errors)
    return [
        f"{name} is {figures[name]:.6g} in the result and {value:.6g} by its samples"
        for name, value in found.items()
        if name in figures and not np.isclose(figures[name], value, rtol=ROUNDING, atol=0)
    ]
