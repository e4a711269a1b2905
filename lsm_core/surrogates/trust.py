"""How far a prediction can be trusted: the error to expect, and whether its input is a strange one.

    trust = calibrated(surrogate, train, validation)     # lsm_core/evaluation/calibration.py
    opinion = trust.opinion(surrogate, inputs, predicted)
    opinion.expected_error      # at most so much, in 90 % of all samples like those of training
    opinion.is_strange          # unlike them; so are called 2 % of those that are like them

**Expected error.** Split conformal prediction (Lei et al., 2018): the relative error e of samples
that the model was not trained on is divided by a guess s^b of its size, and the quantile q of these
ratios bounds q s^b the error of a new one. The coverage holds whatever the model and the guess are,
as long as new samples come from where the old ones came from. The guess is the spread

    s(x) = |f(x + d) - f(x - d)| / 2 |f(x)|

over a small noise d: it costs two more passes and works for every problem and model, where
symmetries hold on some problems only and earlier checkpoints are not kept with a model. The power b
follows from training samples.

**Strange inputs.** The features of a sample are its normalised inputs, averaged over cells, and
what the model makes of them inside: the latent tokens of an LSM, what the last layer reads of any
other. Their distance from the training samples is Mahalanobis' in the directions that these have,
and Euclid's in the others, in units of what is usual there. Strange is what lies farther away than
almost all validation samples. What an input does not hold, no distance tells: of a viscosity that
is none of the inputs, nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import ceil
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.head import Head
from lsm_core.models import lsm, lsm_ours
from lsm_core.surrogates.surrogate import Surrogate, predict, samples_at_once

COVERAGE = 0.9
"""Part of samples whose error is to be at most the expected one."""
FALSE_ALARMS = 0.02
"""Part of samples like those of training that may be called strange."""
DEVIATIONS = 3.0
"""So far above what is usual a number is no chance."""
NOISE = 0.05
"""Of the deviation of a channel over the points of a sample."""
CELLS = {1: 16, 2: 6, 3: 4}
"""Along each axis, over which inputs are averaged."""
LARGEST = 1e30
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Opinion:
    """What is thought of each prediction."""

    expected_error: Float[np.ndarray, " samples"]
    """Bound of the relative L2 error, for samples like those of training."""
    is_strange: Bool[np.ndarray, " samples"]
    strangeness: Float[np.ndarray, " samples"]
    """Distance from the training samples; above 1 it is strange."""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """A calibration, as plain arrays: it is kept beside the weights that it is of."""

    cells: Float[np.ndarray, ""]
    """Along each axis, over which inputs are averaged; 1 for points in no order."""
    power: Float[np.ndarray, ""]
    ratios: Float[np.ndarray, " calibration"]
    """Error over guess of the calibration samples, sorted."""
    distances: Float[np.ndarray, " seen"]
    """Of the calibration samples from the training samples, sorted."""
    centre: Float[np.ndarray, " feature"]
    sizes: Float[np.ndarray, " feature"]
    basis: Float[np.ndarray, "direction feature"]
    deviations: Float[np.ndarray, " direction"]
    rest: Float[np.ndarray, ""]
    """Usual distance of a training sample from the span of the basis."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "Trust":
        """Return what `to_arrays` wrote; ValueError if it is something else."""
        missing = {field.name for field in fields(cls)} - arrays.keys()
        if missing:
            raise ValueError(f"a calibration has no {', '.join(sorted(missing))}")
        return cls(**{f.name: np.asarray(arrays[f.name], np.float32) for f in fields(cls)})

    def to_arrays(self) -> dict[str, Array]:
        """Return all of it as arrays."""
        return {f.name: np.asarray(getattr(self, f.name), np.float32) for f in fields(self)}

    @property
    def coverage(self) -> float:
        """Return how many samples have at most the expected error: as many as can be stated."""
        return min(COVERAGE, len(self.ratios) / (len(self.ratios) + 1))

    @property
    def false_alarms(self) -> float:
        """Return how many samples like those of training are called strange."""
        return max(FALSE_ALARMS, 1 / (len(self.distances) + 1))

    def most_by_chance(self, n_samples: int) -> float:
        """Return how many of some samples like those of training chance may call strange.

        Of n samples, each strange with the probability p that m calibration samples have told,
        n p are strange on average, and the variance is that of Polya's urn, which counts that p is
        not known better: n p (1 - p) (n + m + 1) / (m + 2). Three deviations are chance.
        """
        part, n_known = self.false_alarms, len(self.distances)
        spread = (n_samples + n_known + 1) / (n_known + 2)
        variance = n_samples * part * (1 - part) * spread
        return float(n_samples * part + DEVIATIONS * variance**0.5)

    def expected_errors(
        self, spreads: Float[np.ndarray, " samples"], coverage: float | None = None
    ) -> Float[np.ndarray, " samples"]:
        """Return the bound of the error of samples with these spreads."""
        part = self.coverage if coverage is None else coverage
        return conformal_quantile(self.ratios, part) * guesses(spreads, float(self.power))

    def opinion(
        self,
        surrogate: Surrogate,
        inputs: Float[Tensor, "samples *space n_inputs"],
        predicted: Float[Tensor, "samples *space n_outputs"],
    ) -> Opinion:
        """Return what to think of predictions."""
        strangeness = self.strangeness(features(surrogate, inputs, int(self.cells)))
        return Opinion(
            expected_error=self.expected_errors(spread(surrogate, inputs, predicted)),
            is_strange=strangeness > 1,
            strangeness=strangeness,
        )

    def strangeness(
        self, found: Float[np.ndarray, "samples feature"]
    ) -> Float[np.ndarray, " samples"]:
        """Return the distance of features over the largest that is not strange."""
        return self.distance(found) / conformal_quantile(self.distances, 1 - self.false_alarms)

    def distance(
        self, found: Float[np.ndarray, "samples feature"]
    ) -> Float[np.ndarray, " samples"]:
        """Return how far features lie from those of the training samples, about 1 for those."""
        centred = (found - self.centre) / self.sizes
        along = centred @ self.basis.T
        beside = np.linalg.norm(centred - along @ self.basis, axis=1) / self.rest
        squares = np.square(along / self.deviations).mean(1) + np.square(beside)
        return np.minimum(np.sqrt(squares / 2), LARGEST)


def conformal_quantile(values: Float[np.ndarray, " samples"], part: float) -> float:
    """Return what a new value stays below with this probability, given sorted ones of its kind."""
    number = ceil((len(values) + 1) * part - 1e-9)
    return float(values[number - 1]) if number <= len(values) else np.inf


def guesses(spreads: Float[np.ndarray, " samples"], power: float) -> Float[np.ndarray, " samples"]:
    """Return what is guessed of errors, but for a factor."""
    return np.maximum(spreads, np.finfo(np.float32).tiny) ** power


def spread(
    surrogate: Surrogate,
    inputs: Float[Tensor, "samples *space n_inputs"],
    predicted: Float[Tensor, "samples *space n_outputs"],
) -> Float[np.ndarray, " samples"]:
    """Return by what part of its norm a prediction changes under a small noise on the input.

    The noise is the same for all samples, so that no prediction depends on its neighbours.
    """
    encoded = surrogate.inputs.encode(inputs)
    sizes = encoded.flatten(1, -2).std(1).reshape(len(inputs), *[1] * (inputs.ndim - 2), -1)
    noise = torch.randn(encoded.shape[1:], generator=torch.Generator().manual_seed(0))
    size = samples_at_once(inputs[0, ..., 0].numel())
    ways = [
        predict(surrogate, surrogate.inputs.decode(encoded + sign * NOISE * sizes * noise), size)
        for sign in (1, -1)
    ]
    change = torch.linalg.vector_norm((ways[0] - ways[1]).flatten(1), dim=1) / 2
    norm = torch.linalg.vector_norm(predicted.flatten(1), dim=1)
    return (change / norm.clamp_min(1e-30)).double().numpy()


def features(
    surrogate: Surrogate, inputs: Float[Tensor, "samples *space n_inputs"], cells: int
) -> Float[np.ndarray, "samples feature"]:
    """Return what tells samples apart: averages of the inputs, and what the model makes of them."""
    size = samples_at_once(inputs[0, ..., 0].numel())
    parts = []
    for some in inputs.split(size):
        with _observed(surrogate.model) as seen:
            predict(surrogate, some, size)
        inside = [_of_samples(each, len(some)) for each in seen]
        parts.append(torch.cat([_pooled(surrogate.inputs.encode(some), cells), *inside], dim=1))
    return torch.cat(parts).double().numpy()


def n_pooled(inputs: Float[Tensor, "samples *space n_inputs"], cells: int) -> int:
    """Return how many of the features are averages of the inputs; they stand first."""
    return _pooled(inputs[:1], cells).shape[1]


def _pooled(
    values: Float[Tensor, "samples *space channel"], cells: int
) -> Float[Tensor, "samples feature"]:
    """Return averages over cells, and the deviation over all points, of every channel."""
    sizes = tuple(min(cells, size) for size in values.shape[1:-1])
    pool: Callable[..., Tensor] = getattr(functional, f"adaptive_avg_pool{len(sizes)}d")
    averages = pool(values.movedim(-1, 1), sizes).flatten(1)
    return torch.cat([averages, values.flatten(1, -2).std(1)], dim=1)


def _of_samples(values: Tensor, n_samples: int) -> Float[Tensor, "samples feature"]:
    """Return one row a sample of what was seen inside; nothing if samples cannot be told apart."""
    if not len(values) or len(values) % n_samples:
        return torch.zeros(n_samples, 0)
    patches = values.reshape(n_samples, -1, *values.shape[1:])
    return patches.mean(1).flatten(1).float().cpu()


@contextmanager
def _observed(model: nn.Module) -> Iterator[list[Tensor]]:
    """Provide a list that holds what the model had inside when it was first applied."""
    modules = list(model.modules())
    ours = [each.value for each in modules if isinstance(each, lsm_ours.LatentSpectralBlock)]
    papers = [each.solver for each in modules if isinstance(each, lsm.LatentSpectralBlock)]
    seen: list[Tensor] = []
    hooks = []

    def note_made(_: nn.Module, __: tuple[Tensor, ...], made: Tensor) -> None:
        seen.append(made) if not seen else None

    def note_given(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        seen.append(given[0]) if not seen else None

    def note_points(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        # Called layer after layer: what the last one reads is what stays.
        values = given[0].movedim(1, -1) if isinstance(module, CONVOLUTIONS) else given[0]
        points = values.flatten(1, -2) if values.ndim > 2 else values.unsqueeze(1)
        seen[:] = [torch.stack([points.mean(1), points.square().mean(1).sqrt()], dim=1)]

    if ours:
        hooks.append(ours[-1].register_forward_hook(note_made))
    elif papers:
        hooks.append(papers[-1].register_forward_pre_hook(note_given))
    else:
        layers = (each for each in modules if isinstance(each, (nn.Linear, Head, *CONVOLUTIONS)))
        hooks += [each.register_forward_pre_hook(note_points) for each in layers]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
