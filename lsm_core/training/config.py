"""How to train."""

from dataclasses import dataclass
from typing import Literal

Scheme = Literal["none", "pointwise", "channel"]
Schedule = Literal["step", "one_cycle", "constant"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How long, how fast and with which normalisation to train.

    Adam with the weight decay added to the gradient (not AdamW), as the released scripts do. The
    `step` schedule halves the rate every 100 epochs; `one_cycle` rises to the rate and falls to
    nearly nothing, once, and suits short runs.
    """

    epochs: int = 500
    batch_size: int = 20
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    schedule: Schedule = "step"
    input_normalization: Scheme = "none"
    target_normalization: Scheme = "none"

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {self.epochs}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}")
