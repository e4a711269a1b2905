"""The loss that the benchmark is trained with."""

from jaxtyping import Float
from torch import Tensor

from lsm_core.evaluation.metrics import relative_l2


def summed_relative_l2(
    predicted: Float[Tensor, "batch *field"], target: Float[Tensor, "batch *field"]
) -> Float[Tensor, ""]:
    """Return the sum over the batch of each sample's relative L2 error, in physical units.

    The sum, not the mean: the released training scripts use it, and with Adam only its ratio to
    the weight decay matters.
    """
    return relative_l2(predicted, target).sum()
