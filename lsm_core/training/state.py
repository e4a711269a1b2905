"""Everything that changes while a model trains, to and from bytes."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
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
from lsm_core.training.outcome import Diverged, Outcome


@dataclass
class Taken:
    """A step that was taken and not yet looked at, and where training stood before it."""

    outcome: Outcome
    batch: int
    learning_rate: float
    schedule: dict[str, Any]
    groups: list[dict[str, Any]]


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
    """Sum of the losses of these batches, as far as they were looked at."""

    learning_rate: float = 0.0
    """Rate of the last step."""
    averaging: float = 0.0
    """Share of the old in the running mean of the weights at each step."""
    average: dict[str, Tensor] = field(default_factory=dict)
    """That mean, of running statistics, too; empty if there is none."""
    stopped: Tensor | None = None
    """1 on the model's device from the first step that went wrong on, before that 0."""
    taken: list[Taken] = field(default_factory=list)
    """Steps that nobody has looked at."""

    def step(self, outcome: Outcome) -> None:
        """Change the weights by the gradients that are there, and the rate by the schedule.

        From an outcome that went wrong on, weights and moments stay as they are. The device itself
        sees to that: `look` is the first to know.
        """
        groups = [
            {k: v for k, v in g.items() if k != "params"} for g in self.optimizer.param_groups
        ]
        schedule = deepcopy(self.schedule.state_dict())
        self.taken.append(Taken(outcome, self.batch, self.learning_rate, schedule, groups))
        self.stopped = outcome.stopped_after(self.stopped)
        self.optimizer.found_inf = self.stopped  # type: ignore[attr-defined]
        self.learning_rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.schedule.step()
        self.batch += 1
        if self.average:
            self._add_to_average()

    def _add_to_average(self) -> None:
        n_steps = self.schedule.last_epoch
        # At first a shorter memory, that the random weights are forgotten soon.
        kept = min(self.averaging, (1 + n_steps) / (10 + n_steps))
        own = self.model.state_dict()
        means = list(self.average.values())
        changes = torch._foreach_sub([own[name] for name in self.average], means)
        # A number on the device, like the step itself: nothing from the first that went wrong on.
        assert self.stopped is not None
        torch._foreach_mul_(changes, (1 - kept) * (1 - self.stopped))
        torch._foreach_add_(means, changes)

    def look(self) -> None:
        """Wait for the steps taken, and add their losses; Diverged if one of them went wrong.

        The state is then that before it.
        """
        taken, self.taken = self.taken, []
        numbers = torch.stack([step.outcome.numbers for step in taken]).tolist() if taken else []
        for step, (loss, norm) in zip(taken, numbers, strict=True):
            reason = step.outcome.reason_to_stop(loss, norm)
            if reason:
                self._return_to(step)
                raise Diverged(
                    f"{reason} in batch {step.batch} of epoch {self.epoch}; "
                    "the state before it is kept; lower the learning rate"
                )
            self.epoch_loss += loss

    def _return_to(self, step: Taken) -> None:
        """Undo what steps change besides weights and moments."""
        self.batch, self.learning_rate, self.stopped = step.batch, step.learning_rate, None
        self.schedule.load_state_dict(step.schedule)
        for group, before in zip(self.optimizer.param_groups, step.groups, strict=True):
            group.update(before)

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
        """Return the whole state as bytes. Collective, as `snapshot` is."""
        return self.snapshot(notes).to_bytes()

    def snapshot(self, notes: dict[str, Any]) -> "Snapshot":
        """Return a copy of the whole state; `notes` is plain data that comes back with it.

        All ranks must call it together: it holds the random state of each. Diverged if a step went
        wrong that nobody had looked at.
        """
        self.look()
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
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
        return Snapshot(host_copy(tensors), json.dumps(plain))

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


@dataclass(frozen=True)
class Snapshot:
    """A state as it was, in the host's memory: training goes on while it is written."""

    tensors: Mapping[str, Tensor]
    plain: str

    def to_bytes(self) -> bytes:
        """Return it in the safetensors format."""
        return save(dict(self.tensors), {"state": self.plain})


def host_copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies in the host's memory; those of a GPU are made all at once, in pinned memory."""
    copies, on_gpu = {}, False
    for name, tensor in tensors.items():
        kept = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        copies[name] = kept.copy_(tensor, non_blocking=tensor.is_cuda)
        on_gpu = on_gpu or tensor.is_cuda
    if on_gpu:
        torch.cuda.synchronize()
    return copies


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
