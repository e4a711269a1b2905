"""Everything that changes while a model trains, to and from bytes."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Adam, AdamW
from torch.optim.lr_scheduler import ConstantLR, LRScheduler, OneCycleLR, StepLR

from lsm_core.layers.ranks import gathered, rank
from lsm_core.training.config import TrainingConfig


@dataclass
class TrainingState:
    """A model in training: its weights, the optimiser's moments, the schedule and the position.

    Bytes are in the safetensors format, which holds arrays and text and cannot run code.
    """

    model: nn.Module
    optimizer: Adam
    schedule: LRScheduler
    epoch: int = 0
    """Epochs done."""
    batch: int = 0
    """Batches done of the epoch after them."""
    epoch_loss: float = 0.0
    """Sum of the losses of these batches."""

    learning_rate: float = 0.0
    """Rate of the last step."""
    averaging: float = 0.0
    """Share of the old in the running mean of the weights at each step."""
    average: dict[str, Tensor] = field(default_factory=dict)
    """That mean, of running statistics, too; empty if there is none."""

    def step(self) -> None:
        """Change the weights by the gradients that are there, and the rate by the schedule."""
        self.learning_rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.schedule.step()
        if self.average:
            n_steps = self.schedule.last_epoch
            # At first a shorter memory, that the random weights are forgotten soon.
            kept = min(self.averaging, (1 + n_steps) / (10 + n_steps))
            own = self.model.state_dict()
            means, values = list(self.average.values()), [own[name] for name in self.average]
            torch._foreach_lerp_(means, values, 1 - kept)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the model the mean of its weights for a while, if there is one."""
        own = self.model.state_dict()
        kept = {name: own[name].clone() for name in self.average}
        self.take(self.average)
        try:
            yield
        finally:
            self.take(kept)

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Overwrite some weights of the model, by name."""
        own = self.model.state_dict()
        for name, value in weights.items():
            own[name].copy_(value)

    def to_bytes(self, notes: dict[str, Any]) -> bytes:
        """Return the whole state; `notes` is plain data that comes back with it.

        All ranks must call it together: it holds the random state of each.
        """
        tensors = {f"model.{k}": v.contiguous() for k, v in self.model.state_dict().items()}
        tensors |= {f"average.{name}": value for name, value in self.average.items()}
        moments = self.optimizer.state_dict()["state"]
        for index, values in moments.items():
            tensors |= {f"adam.{index}.{name}": value for name, value in values.items()}
        schedule = {k: v for k, v in self.schedule.state_dict().items() if not callable(v)}
        schedule.pop("_anneal_func_type", None)
        plain = {
            "epoch": self.epoch,
            "batch": self.batch,
            "epoch_loss": self.epoch_loss,
            "learning_rate": self.learning_rate,
            "notes": notes,
            "schedule": schedule,
            "groups": self.optimizer.state_dict()["param_groups"],
            "random": gathered(_random_states()),
        }
        return save(tensors, {"state": json.dumps(plain)})

    def restore(self, content: bytes) -> dict[str, Any]:
        """Take over a saved state of the same model and return its notes."""
        tensors, plain = _read(content)
        self.model.load_state_dict(_part(tensors, "model."))
        average = _part(tensors, "average.")
        for name, mean in self.average.items():
            mean.copy_(average[name])
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in _part(tensors, "adam.").items():
            index, moment = name.split(".", 1)
            moments.setdefault(int(index), {})[moment] = value
        self.optimizer.load_state_dict({"state": moments, "param_groups": plain["groups"]})
        self.schedule.load_state_dict(plain["schedule"])
        # A run that continues on more ranks than before has no state for the new ones.
        if rank() < len(plain["random"]):
            _set_random_states(plain["random"][rank()])
        self.epoch, self.batch = plain["epoch"], plain["batch"]
        self.epoch_loss, self.learning_rate = plain["epoch_loss"], plain["learning_rate"]
        return dict(plain["notes"])


def start_training(model: nn.Module, config: TrainingConfig, n_batches: int) -> TrainingState:
    """Return the state before the first epoch of `n_batches` batches each.

    Parameters that ask for no gradient are left as they are.
    """
    optimizer_class = AdamW if config.optimizer == "adamw" else Adam
    optimizer = optimizer_class(
        _parameter_groups(model, config),
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        fused=True,
    )
    schedule: LRScheduler
    if config.schedule == "step":
        schedule = StepLR(optimizer, step_size=100 * n_batches, gamma=0.5)
    elif config.schedule == "one_cycle":
        total = config.epochs * n_batches
        schedule = OneCycleLR(optimizer, max_lr=config.learning_rate, total_steps=total)
    else:
        schedule = ConstantLR(optimizer, factor=1.0)
    average = {
        name: value.clone()
        for name, value in model.state_dict().items()
        if config.averaging and value.is_floating_point()
    }
    return TrainingState(model, optimizer, schedule, averaging=config.averaging, average=average)


def _parameter_groups(model: nn.Module, config: TrainingConfig) -> list[dict[str, Any]]:
    """Return the parameters that are trained, those that do not decay apart."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if config.decayed == "all":
        return [{"params": trained}]
    matrices = [parameter for parameter in trained if parameter.ndim > 1]
    others = [parameter for parameter in trained if parameter.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices},
        {"params": others, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def model_weights(content: bytes) -> dict[str, Tensor]:
    """Return the weights and buffers of the model in a saved state, their means if it has some."""
    tensors = _read(content)[0]
    return _part(tensors, "model.") | _part(tensors, "average.")


def saved_notes(content: bytes) -> dict[str, Any]:
    """Return the notes of a saved state, without its arrays."""
    return dict(_plain_part(content)["notes"])


def _random_states() -> dict[str, list[int]]:
    states = {"cpu": torch.get_rng_state().tolist()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state().tolist()
    return states


def _set_random_states(states: dict[str, list[int]]) -> None:
    torch.set_rng_state(torch.tensor(states["cpu"], dtype=torch.uint8))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.tensor(states["cuda"], dtype=torch.uint8))


def _read(content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    plain = _plain_part(content)
    try:
        return load(content), plain
    except SafetensorError as error:
        raise ValueError(f"this is no saved training state: {error}") from error


def _plain_part(content: bytes) -> dict[str, Any]:
    try:
        header_size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + header_size])
        return dict(json.loads(header["__metadata__"]["state"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"this is no saved training state: {error}") from error


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
