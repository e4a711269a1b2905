"""How to train."""

from dataclasses import dataclass
from typing import Literal

from lsm_core.layers.choices import check_at_least, check_choices
from lsm_core.names import Precision, Scheme, Statistics

Schedule = Literal["step", "one_cycle", "constant"]
Selection = Literal["last", "best_validation", "best_test"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How long, how fast and with which normalisation to train.

    Adam with the weight decay added to the gradient (not AdamW), as the released scripts do. The
    `step` schedule halves the rate every 100 epochs; `one_cycle` rises to the rate and falls to
    nearly nothing, once, and suits short runs.
    """

    epochs: int = 500
    batch_size: int = 20
    """Samples a step, over all ranks and accumulated parts."""
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    schedule: Schedule = "step"
    input_normalization: Scheme = "none"
    target_normalization: Scheme = "none"
    fraction: float = 1.0
    """Part of the training samples in use, from the first on: smaller parts lie in larger ones."""
    accumulation: int = 1
    """Parts in which a batch passes through the model, one after the other, to save memory. Batch
    normalisation sees each part alone."""
    precision: Precision = "float32"
    """`tf32` and `bfloat16` are for GPUs. Fourier transforms and our convolutions
    stay in float32."""
    compile: bool = False
    """Whether torch compiles the model, on GPUs."""
    shuffle_bytes: int = 2**30
    """Training sets up to this size are permuted as a whole, larger ones within windows of it.
    The order does not depend on how much is held in memory."""
    selection: Selection = "last"
    """Which epoch's weights are the result. `best_test` looks at the test samples to choose, and
    its error is then no measure of what the model does on new ones."""
    test_statistics: Statistics = "running"
    """`batch` measures in training mode, with the statistics of each test batch, as the released
    Navier-Stokes script does."""

    def __post_init__(self) -> None:
        check_at_least(1, self, "epochs", "batch_size", "accumulation", "shuffle_bytes")
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must be above 0 and at most 1, got {self.fraction}")
        check_choices(self)
