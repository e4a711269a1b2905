"""The training loop. It hands control back after every epoch; it does not call out."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

import torch
from torch import nn

from lsm_core.training.batches import Batches, Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.losses import summed_relative_l2
from lsm_core.training.state import TrainingState


class Diverged(RuntimeError):
    """The loss is no longer a number."""


@dataclass(frozen=True)
class EpochReport:
    """What one epoch showed."""

    epoch: int
    """Epochs done, this one included."""
    train_loss: float
    """Mean relative L2 error of the training samples, each before the step it led to."""
    learning_rate: float


def fit(state: TrainingState, batches: Batches, config: TrainingConfig) -> Iterator[EpochReport]:
    """Train to `config.epochs`, yielding after each epoch so the caller may log, save or stop."""
    while state.epoch < config.epochs:
        learning_rate = state.optimizer.param_groups[0]["lr"]
        state.model.train()
        total = 0.0
        for number, batch in enumerate(batches.epoch(state.epoch)):
            loss = train_step(state, batch)
            if not isfinite(loss):
                raise Diverged(
                    f"the loss became {loss} in batch {number} of epoch {state.epoch}; "
                    "lower the learning rate"
                )
            total += loss
        state.epoch += 1
        yield EpochReport(state.epoch, total / len(batches.fields), learning_rate)


def train_step(state: TrainingState, batch: Fields) -> float:
    """Take one step of the optimiser and return the summed loss before it."""
    device = _device(state.model)
    state.optimizer.zero_grad(set_to_none=True)
    loss = summed_relative_l2(state.model(batch.inputs.to(device)), batch.targets.to(device))
    value = loss.item()
    if isfinite(value):
        loss.backward()
        state.optimizer.step()
        state.schedule.step()
    return value


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
