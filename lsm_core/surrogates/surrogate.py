"""A trained model as its users see it: physical values in, physical values out."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lsm_core.names import Statistics
from lsm_core.surrogates.normalization import Normalization
from lsm_core.surrogates.rollout import Rollout

POINTS_AT_ONCE, SAMPLES_AT_ONCE = 2**20, 100
"""How much passes through a model together where only its outputs are wanted."""


class Surrogate(nn.Module):
    """A model between the normalisations of its inputs and outputs."""

    def __init__(self, model: nn.Module, inputs: Normalization, outputs: Normalization) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.outputs = outputs

    def forward(
        self,
        values: Float[Tensor, "batch *space n_inputs"],
        is_there: Bool[Tensor, "batch *space"] | None = None,
    ) -> Float[Tensor, "batch *space n_outputs"]:
        """Return predicted fields in physical units.

        Where samples differ in their number of points, `is_there` says which there are.
        """
        encoded = self.inputs.encode(values)
        if is_there is None:
            return self.outputs.decode(self.model(encoded))
        return self.outputs.decode(self.model(encoded, is_there))

    def forced(
        self,
        values: Float[Tensor, "batch *space n_inputs"],
        targets: Float[Tensor, "batch *space n_outputs"],
        noise: float = 0.0,
    ) -> Float[Tensor, "batch *space n_outputs"]:
        """Return predicted fields, each step of a rollout from true frames: for training alone.

        An operator that takes no steps predicts as ever.
        """
        if not isinstance(self.model, Rollout):
            return self(values)
        frames = self.outputs.encode(targets)
        return self.outputs.decode(self.model.forced(self.inputs.encode(values), frames, noise))


def applied(
    model: nn.Module,
    inputs: Float[Tensor, "batch *space n_inputs"],
    weights: Float[Tensor, "batch *space"] | None = None,
) -> Float[Tensor, "batch *space n_outputs"]:
    """Return what a model makes of inputs, on its own device; points without weight are none."""
    device = next(model.parameters()).device
    if weights is None:
        return model(inputs.to(device))
    return model(inputs.to(device), weights.to(device) > 0)


def samples_at_once(n_points: int) -> int:
    """Return how many samples of so many points pass through a model together.

    By their size alone, never by the memory that happens to be free: figures are then the same
    everywhere, to the last bit.
    """
    return max(1, min(SAMPLES_AT_ONCE, POINTS_AT_ONCE // n_points))


def predict(
    model: nn.Module,
    inputs: Float[Tensor, "samples *space n_inputs"],
    batch_size: int,
    statistics: Statistics = "running",
    weights: Float[Tensor, "samples *space"] | None = None,
) -> Float[Tensor, "samples *space n_outputs"]:
    """Return predictions batch by batch, without gradients, in evaluation mode by default.

    A batch that a GPU has no room for is halved, unless its statistics are part of the result.
    """
    parts = inputs.split(batch_size)
    counted = [None] * len(parts) if weights is None else weights.split(batch_size)
    try:
        with _measuring(model, statistics), torch.no_grad():
            done = [applied(model, *each).cpu() for each in zip(parts, counted, strict=True)]
        return torch.cat(done)
    except torch.OutOfMemoryError:
        if batch_size == 1 or statistics == "batch":
            raise
    return predict(model, inputs, batch_size // 2, statistics, weights)


@contextmanager
def _measuring(model: nn.Module, statistics: Statistics) -> Iterator[None]:
    """Put a model into the mode of its statistics, and bring it back unchanged."""
    was_training = model.training
    kept = {}
    if statistics == "batch":
        # A pass in training mode would change the running statistics.
        kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train(statistics == "batch")
    try:
        yield
    finally:
        model.train(was_training)
        for name, buffer in model.named_buffers():
            if name in kept:
                buffer.copy_(kept[name])
