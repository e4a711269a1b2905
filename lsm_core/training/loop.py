"""The training loop. It hands control back after every batch and epoch; it does not call out."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from lsm_core.layers.ranks import n_ranks, rank, sum_in_place
from lsm_core.surrogates.surrogate import Surrogate, applied
from lsm_core.training.batches import Batches, Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.losses import Grid, summed_derivative_error, summed_relative_l2
from lsm_core.training.outcome import Diverged, Outcome
from lsm_core.training.state import TrainingState

__all__ = ["BatchReport", "Diverged", "EpochReport", "fit", "train_step"]

LOOK_EVERY = 64
"""Steps between two looks at their losses, on a device that the host would have to wait for."""


@dataclass(frozen=True)
class BatchReport:
    """What one batch showed."""

    epoch: int
    """Epochs done before it."""
    batch: int
    """Batches of this epoch done, this one included."""


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
    middle of an epoch, too. Diverged if a loss or a gradient is no number: at once on a CPU, else
    when the state is looked at, and with the same words and state.
    """
    while state.epoch < config.epochs:
        state.model.train()
        for batch in batches.epoch(state.epoch, state.batch):
            train_step(state, batch, config, grid)
            if not _host_would_wait(state.model) or len(state.taken) >= LOOK_EVERY:
                state.look()
            yield BatchReport(state.epoch, state.batch)
        state.look()
        mean_loss = state.epoch_loss / batches.n_samples
        state.epoch, state.batch, state.epoch_loss = state.epoch + 1, 0, 0.0
        yield EpochReport(state.epoch, mean_loss, state.learning_rate)


def train_step(
    state: TrainingState, batch: Fields, config: TrainingConfig | None = None, grid: Grid = ()
) -> Outcome:
    """Take one step of the optimiser; return the summed error before it and the gradient's norm.

    The error is that of the values, also where derivatives are trained on, too.

    With several ranks each takes its share of the batch. Losses and gradients are sums over the
    samples, so that the sum over the ranks is what one process would have had. If it is not
    finite the step is not taken. The host waits for nothing.
    """
    config = config or TrainingConfig()
    model = state.model
    state.optimizer.zero_grad(set_to_none=True)
    share, weight = _share(batch)
    total = torch.zeros((), device=_device(model))
    for part in _parts(share, len(batch), config.accumulation):
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
    norm = get_total_norm(gradients)
    outcome = Outcome(torch.stack([total, norm]), len(batch))
    if config.gradient_clip:
        # The loss is a sum over the samples, the limit is for their mean.
        limit = config.gradient_clip * len(batch)
        clip_grads_with_norm_(model.parameters(), limit, norm)
    state.step(outcome)
    return outcome


def _share(batch: Fields) -> tuple[Fields, float]:
    """Return the samples of this rank, and the weight of their loss.

    A batch with fewer samples than ranks is worked on as a whole by all of them.
    """
    if len(batch) < n_ranks():
        return batch, 1 / n_ranks()
    own = slice(rank(), None, n_ranks())
    return batch[own], 1.0


def _parts(share: Fields, n_samples: int, accumulation: int) -> list[Fields]:
    """Return the parts of a share that pass through the model one after the other.

    Shares differ by a sample, and every rank has as many parts as the smallest share gives: ranks
    that wait for each other in every part must not have one more.
    """
    if n_ranks() == 1 or n_samples < n_ranks():
        return share.split(-(-len(share) // accumulation))
    smallest = n_samples // n_ranks()
    n_parts = -(-smallest // -(-smallest // accumulation))
    return [share[samples] for samples in torch.arange(len(share)).tensor_split(n_parts)]


def _predicted(model: nn.Module, part: Fields, targets: Tensor, config: TrainingConfig) -> Tensor:
    if config.teacher_forcing and isinstance(model, Surrogate):
        return model.forced(part.inputs.to(_device(model)), targets, config.frame_noise)
    return applied(model, part.inputs, part.weights)


def _autocast(model: nn.Module, config: TrainingConfig) -> AbstractContextManager[object]:
    if config.precision != "bfloat16":
        return nullcontext()
    return torch.autocast(_device(model).type, torch.bfloat16)


def _host_would_wait(model: nn.Module) -> bool:
    """Return whether reading a number makes the host wait for the device."""
    return _device(model).type != "cpu"


def _device(model: nn.Module) -> torch.device:
    parameter: Tensor = next(model.parameters())
    return parameter.device
