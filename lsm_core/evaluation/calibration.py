"""How far the predictions of a trained model can be trusted, learned after training."""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float

from lsm_core.evaluation.evaluate import relative_l2
from lsm_core.surrogates.surrogate import Surrogate, predict, samples_at_once
from lsm_core.surrogates.trust import CELLS, Array, Trust, features, guesses, n_pooled, spread
from lsm_core.training.batches import Fields

CALIBRATION_SAMPLES = 400
"""So many of each part tell what is usual; more would tell little and take long."""
VARIANCE = 0.99
"""Part of the variance of the training samples that lies along the directions they have."""
SAMPLES_A_DIRECTION, DIRECTIONS = 5, 48


def calibrated(
    surrogate: Surrogate, train: Fields, calibration: Fields, *, in_order: bool = True
) -> Trust:
    """Return how far a model is to be trusted, by samples that it was not trained on.

    Scattered points are not in order: what stands at which place of an array tells nothing.
    ValueError if there are none, or if samples differ in their number of points.
    """
    if not len(calibration) or not len(train):
        raise ValueError("there are no validation samples to calibrate with")
    if train.weights is not None:
        raise ValueError("samples differ in their points, of which nothing is calibrated yet")
    known = train[torch.linspace(0, len(train) - 1, min(CALIBRATION_SAMPLES, len(train))).long()]
    errors, spreads = errors_and_spreads(surrogate, known)
    power = _power(errors, spreads)
    errors, spreads = errors_and_spreads(surrogate, calibration)
    cells = CELLS[train.inputs.ndim - 2] if in_order else 1
    usual = _usual_features(surrogate, known, cells)
    flat = Trust(
        cells=np.array(float(cells)),
        power=np.array(power),
        ratios=np.sort(errors / guesses(spreads, power)),
        distances=np.zeros(0),
        **usual,
    )
    distances = flat.distance(features(surrogate, calibration.inputs, cells))
    return Trust(**{**vars(flat), "distances": np.sort(distances)})


def errors_and_spreads(
    surrogate: Surrogate, samples: Fields
) -> tuple[Float[np.ndarray, " samples"], Float[np.ndarray, " samples"]]:
    """Return the relative error of every sample, and the spread of its prediction."""
    size = samples_at_once(samples.inputs[0, ..., 0].numel())
    predicted = predict(surrogate, samples.inputs, size)
    errors = relative_l2(predicted, samples.targets).double().numpy()
    return errors, spread(surrogate, samples.inputs, predicted)


def observed_coverage(
    trust: Trust,
    errors: Float[np.ndarray, " samples"],
    spreads: Float[np.ndarray, " samples"],
    parts: Iterable[float],
) -> list[float]:
    """Return how many errors stay below what is expected, for each coverage stated."""
    return [float((errors <= trust.expected_errors(spreads, part)).mean()) for part in parts]


def _power(errors: Float[np.ndarray, " samples"], spreads: Float[np.ndarray, " samples"]) -> float:
    """Return b between 0 and 1 such that errors go most like spread^b; 0 if they do not at all."""
    x, y = np.log(np.maximum(spreads, 1e-30)), np.log(np.maximum(errors, 1e-30))
    variance = float(x.var())
    if len(x) < SAMPLES_A_DIRECTION or variance == 0:
        return 0.0
    return float(np.clip(((x - x.mean()) * (y - y.mean())).mean() / variance, 0.0, 1.0))


def _usual_features(surrogate: Surrogate, known: Fields, cells: int) -> dict[str, Array]:
    """Return centre, sizes and directions of the features of training samples."""
    found = features(surrogate, known.inputs, cells)
    centre = found.mean(0)
    # Inputs and what a model makes of them are of different size; each part counts as much.
    n_inside = found.shape[1] - n_pooled(known.inputs, cells)
    sizes = np.ones(found.shape[1])
    for part in (slice(0, found.shape[1] - n_inside), slice(found.shape[1] - n_inside, None)):
        sizes[part] = max(float(np.linalg.norm((found - centre)[:, part])), 1e-12)
    scaled = (found - centre) / sizes * np.sqrt(len(found))
    _, strengths, directions = np.linalg.svd(scaled, full_matrices=False)
    shares = np.cumsum(strengths**2) / max(float((strengths**2).sum()), 1e-30)
    n_kept = int(np.searchsorted(shares, VARIANCE)) + 1
    n_kept = max(1, min(n_kept, len(found) // SAMPLES_A_DIRECTION, DIRECTIONS))
    beside = scaled - scaled @ directions[:n_kept].T @ directions[:n_kept]
    return {
        "centre": centre,
        "sizes": sizes / np.sqrt(len(found)),
        "basis": directions[:n_kept],
        "deviations": np.maximum(strengths[:n_kept] / np.sqrt(len(found)), 1e-6),
        "rest": np.array(max(float(np.sqrt(np.square(beside).sum(1).mean())), 1e-3)),
    }
