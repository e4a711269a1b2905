"""Whether new samples look like those that a model was trained on, before anything is trained.

    known = profile_of(training_arrays)
    require_plausible(known, new_arrays)     other units, absurd values: ValueError
    shift_from(known, new_arrays)            another regime: a sentence, else nothing

A sample of a variable is told by four numbers: mean, deviation, least and largest value over its
points. New samples are compared with known ones by these alone, so that the cost is that of reading
them once.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

Arrays = Mapping[str, np.ndarray[Any, np.dtype[Any]]]
Profile = dict[str, Float[np.ndarray, "samples 4"]]
FEATURES = ("mean", "spread", "least value", "largest value")

FACTOR = 10.0
"""By how much the size of a variable may differ; other units differ by more."""
WIDTHS = 1.0
"""So many times the range of the training samples may values lie outside of it."""
SHIFT = 1.0
"""From so many deviations on the mean of a feature is another one ..."""
CERTAINTY = 4.0
"""... if it is that many standard errors, too."""
LEAST_SPREAD = 0.01
"""A feature varies at least by this part of the size of its variable."""


def profile_of(arrays: Arrays) -> Profile:
    """Return the features of every sample, by variable."""
    return {name: _features(values) for name, values in arrays.items()}


def require_plausible(known: Profile, arrays: Arrays) -> None:
    """Raise ValueError, in one sentence, for values that no sample of the problem has."""
    for name, before in known.items():
        after = _features(arrays[name])
        sizes = _size(before), _size(after)
        if sizes[0] and not 1 / FACTOR <= sizes[1] / sizes[0] <= FACTOR:
            raise ValueError(
                f"{name} is of size {sizes[1]:.3g}, the training samples of {sizes[0]:.3g}, "
                f"{_times(sizes[1] / sizes[0])}: its unit seems to be another one; convert it, or "
                "train a model of its own on such samples"
            )
        low, high = before[:, 2].min(), before[:, 3].max()
        margin = WIDTHS * (high - low)
        outside = (after[:, 2] < low - margin) | (after[:, 3] > high + margin)
        if outside.any():
            raise ValueError(
                f"{name} has values from {after[:, 2].min():.3g} to {after[:, 3].max():.3g} in "
                f"{outside.sum()} of {len(after)} samples, expected about {low:.3g} to {high:.3g} "
                "as in the training samples; check how they were made"
            )


def shift_from(known: Profile, arrays: Arrays) -> str:
    """Return how far the samples lie from the known ones, where it is most; nothing if near.

    The distance of a feature is the difference of its means in standard deviations over the known
    samples. It counts from `SHIFT` on, and only if chance does not explain it.
    """
    found = []
    for name, before in known.items():
        after = _features(arrays[name])
        # What is zero but for rounding, such as the mean of a periodic field, varies by chance.
        spread = np.maximum(before.std(0), LEAST_SPREAD * _size(before))
        for number, feature in enumerate(FEATURES):
            if not spread[number]:
                continue
            means = before[:, number].mean(), after[:, number].mean()
            distance = abs(means[1] - means[0]) / spread[number]
            error = (1 / len(before) + 1 / len(after)) ** 0.5
            if distance >= SHIFT and distance >= CERTAINTY * error:
                found.append((distance, name, feature, *means))
    if not found:
        return ""
    distance, name, feature, mean_before, mean_after = max(found)
    return (
        f"the new samples are unlike the training samples: the {feature} of {name} is "
        f"{mean_after:.3g} instead of {mean_before:.3g} on average, {distance:.1f} deviations away"
    )


def _features(values: Float[np.ndarray, "samples *shape"]) -> Float[np.ndarray, "samples 4"]:
    flat = values.reshape(len(values), -1).astype(np.float64)
    return np.stack([flat.mean(1), flat.std(1), flat.min(1), flat.max(1)], axis=1)


def _size(features: Float[np.ndarray, "samples 4"]) -> float:
    """Return the median root mean square of samples."""
    return float(np.median(np.hypot(features[:, 0], features[:, 1])))


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times as large" if ratio >= 1 else f"{1 / ratio:.3g} times as small"
