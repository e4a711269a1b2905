"""The training loop. It hands control back after every batch and epoch; it does not call out."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from lsm_core.layers.ranks import n_ranks, rank, sum_in_place
from lsm_core.surrogates.surrogate import Surrogate, applied
from lsm_core.training.batches import Batches, Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.losses import Grid, summed_derivative_error, summed_relative_l2
from lsm_core.training.state import TrainingState

HOPELESS = 1e4
"""Relative error of a sample beyond which training has lost its way; zero predictions give 1."""


class Diverged(RuntimeError):
    """The loss is no longer a number, or far beyond any that training could come back from."""


@dataclass(frozen=True)
class BatchReport:
    """What one batch showed."""

    epoch: int
    """Epochs done before it."""
    batch: int
    """Batches of this epoch done, this one included."""
    train_loss: float
    """Mean relative L2 error of its samples."""


@dataclass(frozen=True)
class EpochReport:
    """What one epoch showed."""

    epoch: int
    """Epochs done, this one included."""
    train_loss: float
    """Mean relative L2 error of the training samples, each before the step it led to."""
    learning_rate: float


def fit(
    state: TrainingState, batches: Batches, config: TrainingConfig, grid: Grid = ()
) -> Iterator[BatchReport | EpochReport]:
    """Train to `config.epochs`, yielding after each batch and epoch: the caller logs, saves, stops.

    The grid is what derivatives are taken on, where the config asks for them.
    The state is whole whenever control is handed back, and training continues from it in the
    middle of an epoch, too.
    """
    while state.epoch < config.epochs:
        state.model.train()
        for batch in batches.epoch(state.epoch, state.batch):
            loss = _step_or_say_why_not(state, batch, config, grid)
            state.batch += 1
            state.epoch_loss += loss
            yield BatchReport(state.epoch, state.batch, loss / len(batch))
        mean_loss = state.epoch_loss / batches.n_samples
        state.epoch, state.batch, state.epoch_loss = state.epoch + 1, 0, 0.0
        yield EpochReport(state.epoch, mean_loss, state.learning_rate)


def train_step(
    state: TrainingState, batch: Fields, config: TrainingConfig | None = None, grid: Grid = ()
) -> tuple[float, float]:
    """Take one step of the optimiser; return the summed error before it and the gradient's norm.

    The error is that of the values, also where derivatives are trained on, too.

    With several ranks each takes its share of the batch. Losses and gradients are sums over the
    samples, so that the sum over the ranks is what one process would have had. If it is not
    finite the step is not taken.
    """
    config = config or TrainingConfig()
    model = state.model
    state.optimizer.zero_grad(set_to_none=True)
    share, weight = _share(batch)
    total = torch.zeros((), device=_device(model))
    for part in share.split(-(-len(share) // config.accumulation)):
        targets = part.targets.to(_device(model))
        with _autocast(model, config):
            predicted = _predicted(model, part, targets, config)
        loss = error = weight * summed_relative_l2(predicted.float(), targets, part.weights)
        if config.derivative_weight:
            slopes = summed_derivative_error(predicted.float(), targets, grid)
            loss = error + weight * config.derivative_weight * slopes
        loss.backward()
        total += error.detach()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    sum_in_place([total, *gradients])
    total_norm = get_total_norm(gradients)
    value, norm = total.item(), total_norm.item()
    if isfinite(value) and isfinite(norm):
        if config.gradient_clip:
            # The loss is a sum over the samples, the limit is for their mean.
            limit = config.gradient_clip * len(batch)
            clip_grads_with_norm_(model.parameters(), limit, total_norm)
        state.step()
    return value, norm


def _step_or_say_why_not(
    state: TrainingState, batch: Fields, config: TrainingConfig, grid: Grid
) -> float:
    loss, norm = train_step(state, batch, config, grid)
    place = f"in batch {state.batch} of epoch {state.epoch}"
    advice = "the state before it is kept; lower the learning rate"
    if not isfinite(loss):
        raise Diverged(f"the loss became {loss} {place}; {advice}")
    if not isfinite(norm):
        raise Diverged(f"the gradient became {norm} {place}; {advice}")
    if loss > HOPELESS * len(batch):
        mean = loss / len(batch)
        raise Diverged(f"the relative error rose to {mean:.3g} {place}; lower the learning rate")
    return loss


def _share(batch: Fields) -> tuple[Fields, float]:
    """Return the samples of this rank, and the weight of their loss.

    A batch with fewer samples than ranks is worked on as a whole by all of them.
    """
    if len(batch) < n_ranks():
        return batch, 1 / n_ranks()
    own = slice(rank(), None, n_ranks())
    return batch[own], 1.0


def _predicted(model: nn.Module, part: Fields, targets: Tensor, config: TrainingConfig) -> Tensor:
    if config.teacher_forcing and isinstance(model, Surrogate):
        return model.forced(part.inputs.to(_device(model)), targets, config.frame_noise)
    return applied(model, part.inputs, part.weights)


def _autocast(model: nn.Module, config: TrainingConfig) -> AbstractContextManager[object]:
    if config.precision != "bfloat16":
        return nullcontext()
    return torch.autocast(_device(model).type, torch.bfloat16)


def _device(model: nn.Module) -> torch.device:
    parameter: Tensor = next(model.parameters())
    return parameter.device
