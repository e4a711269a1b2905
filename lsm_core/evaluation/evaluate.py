"""Measure a model on samples it was not trained on."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.evaluation.metrics import relative_l2
from lsm_core.training.batches import Fields


def predict(
    model: nn.Module, inputs: Float[Tensor, "samples *space n_inputs"], batch_size: int
) -> Float[Tensor, "samples *space n_outputs"]:
    """Return predictions batch by batch, in evaluation mode and without gradients."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    with torch.no_grad():
        parts = [model(part.to(device)).cpu() for part in inputs.split(batch_size)]
    model.train(was_training)
    return torch.cat(parts)


def evaluate(model: nn.Module, fields: Fields, batch_size: int) -> dict[str, float]:
    """Return the relative L2 error over samples: mean, median and worst."""
    errors = relative_l2(predict(model, fields.inputs, batch_size), fields.targets)
    return {
        "rel_l2": errors.mean().item(),
        "rel_l2_median": errors.median().item(),
        "rel_l2_max": errors.max().item(),
    }


def error_of_the_mean(train: Fields, test: Fields) -> float:
    """Return the relative L2 error of always predicting the mean of the training targets.

    What a model must beat to have learned anything.
    """
    mean = train.targets.mean(0, keepdim=True).expand_as(test.targets)
    return relative_l2(mean, test.targets).mean().item()
