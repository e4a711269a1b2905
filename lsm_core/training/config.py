"""How to train."""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from lsm_core.layers.choices import check_at_least, check_choices
from lsm_core.names import Precision, Scheme, Statistics

Optimizer = Literal["adam", "adamw"]
Decayed = Literal["all", "matrices"]
Schedule = Literal["step", "one_cycle", "constant"]
Selection = Literal["last", "best_validation", "best_test"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How long, how fast and with which normalisation to train.

    The defaults are what the released scripts do. Adam adds the weight decay to the gradient, AdamW
    takes it off the weights. The `step` schedule halves the rate every 100 epochs; `one_cycle`
    rises to the rate and falls to nearly nothing, once, and suits short runs.
    """

    epochs: int = 500
    batch_size: int = 20
    """Samples a step, over all ranks and accumulated parts."""
    updates: int = 0
    """Least number of steps of the whole run; from it follows the batch size, in place of the one
    above. 0 for that one."""
    learning_rate: float = 1e-3
    optimizer: Optimizer = "adam"
    weight_decay: float = 1e-4
    decayed: Decayed = "all"
    """Which parameters decay. `matrices` are those of two axes or more: no biases, no scales."""
    gradient_clip: float = 0.0
    """Largest norm of the gradient of a batch's mean loss; longer ones are shortened to it. 0 for
    no limit."""
    averaging: float = 0.0
    """Share of the old in the running mean of the weights at each step; the mean is what is
    measured and kept as the result. 0 for the weights themselves."""
    derivative_weight: float = 0.0
    """Weight, beside the error of the values, of the error of their differences between neighbours
    on the problem's grid; scattered points have none."""
    teacher_forcing: bool = False
    """Whether each step of a rollout is trained on true frames, not on the model's own."""
    frame_noise: float = 0.0
    """Deviation of noise on the frames that are read with teacher forcing, as a part of their root
    mean square."""
    schedule: Schedule = "step"
    input_normalization: Scheme = "none"
    target_normalization: Scheme = "none"
    fraction: float = 1.0
    """Part of the training samples in use, from the first on: smaller parts lie in larger ones."""
    accumulation: int = 1
    """Parts in which a batch passes through the model, one after the other, to save memory. Batch
    normalisation sees each part alone."""
    precision: Precision = "float32"
    """`tf32` rounds the factors of convolutions to ten bits. `bfloat16` takes seven for
    convolutions and products; transforms, softmax, statistics and losses stay in float32. Both are
    for GPUs."""
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
        check_at_least(0, self, "updates", "weight_decay", "gradient_clip", "derivative_weight")
        check_at_least(0, self, "frame_noise")
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging must be at least 0 and below 1, got {self.averaging}")
        if self.frame_noise and not self.teacher_forcing:
            raise ValueError("frame_noise is for teacher_forcing, which is off")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must be above 0 and at most 1, got {self.fraction}")
        check_choices(self)

    def batch_of(self, n_samples: int) -> int:
        """Return the samples a step, given how many there are to train on.

        It is the largest with which the epochs have as many steps as are asked for.
        """
        if not self.updates:
            return self.batch_size
        a_epoch = ceil(self.updates / self.epochs)
        if a_epoch > n_samples:
            raise ValueError(
                f"{self.updates} updates in {self.epochs} epochs of {n_samples} samples are more "
                "than one a sample; take more epochs"
            )
        return n_samples if a_epoch == 1 else ceil(n_samples / (a_epoch - 1)) - 1
