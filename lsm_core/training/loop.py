"""The training loop. It hands control back after every batch and epoch; it does not call out."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from lsm_core.evaluation.evaluate import relative_l2
from lsm_core.layers.ranks import n_ranks, rank, sum_in_place
from lsm_core.training.batches import Batches, Fields
from lsm_core.training.config import TrainingConfig
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
    state: TrainingState, batches: Batches, config: TrainingConfig
) -> Iterator[BatchReport | EpochReport]:
    """Train to `config.epochs`, yielding after each batch and epoch: the caller logs, saves, stops.

    The state is whole whenever control is handed back, and training continues from it in the
    middle of an epoch, too. Diverged if a loss or a gradient is no number: at once on a CPU, else
    when the state is looked at, and with the same words and state.
    """
    while state.epoch < config.epochs:
        state.model.train()
        for batch in batches.epoch(state.epoch, state.batch):
            train_step(state, batch, config)
            if not _host_would_wait(state.model) or len(state.taken) >= LOOK_EVERY:
                state.look()
            yield BatchReport(state.epoch, state.batch)
        state.look()
        mean_loss = state.epoch_loss / batches.n_samples
        state.epoch, state.batch, state.epoch_loss = state.epoch + 1, 0, 0.0
        yield EpochReport(state.epoch, mean_loss, state.learning_rate)


def train_step(
    state: TrainingState, batch: Fields, config: TrainingConfig | None = None
) -> Outcome:
    """Take one step of the optimiser; return the summed loss before it and the gradient's norm.

    With several ranks each takes its share of the batch. Losses and gradients are sums over the
    samples, so that the sum over the ranks is what one process would have had. If it is not
    finite the step is not taken. The host waits for nothing.
    """
    config = config or TrainingConfig()
    model = state.model
    state.optimizer.zero_grad(set_to_none=True)
    share, weight = _share(batch)
    total = torch.zeros((), device=_device(model))
    for part in share.split(-(-len(share) // config.accumulation)):
        with _autocast(model, config):
            predicted = model(part.inputs.to(_device(model)))
        loss = weight * summed_relative_l2(predicted.float(), part.targets.to(_device(model)))
        loss.backward()
        total += loss.detach()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    sum_in_place([total, *gradients])
    outcome = Outcome(torch.stack([total, get_total_norm(gradients)]), len(batch))
    state.step(outcome)
    return outcome


def summed_relative_l2(
    predicted: Float[Tensor, "batch *field"], target: Float[Tensor, "batch *field"]
) -> Float[Tensor, ""]:
    """Return the sum over the batch of each sample's relative L2 error, in physical units.

    The sum, not the mean: the released training scripts use it, and with Adam only its ratio to
    the weight decay matters.
    """
    return relative_l2(predicted, target).sum()


def _share(batch: Fields) -> tuple[Fields, float]:
    """Return the samples of this rank, and the weight of their loss.

    A batch with fewer samples than ranks is worked on as a whole by all of them.
    """
    if len(batch) < n_ranks():
        return batch, 1 / n_ranks()
    own = slice(rank(), None, n_ranks())
    return Fields(batch.inputs[own], batch.targets[own]), 1.0


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
