"""How far a prediction is from its target."""

from jaxtyping import Float
from torch import Tensor, linalg


def relative_l2(
    predicted: Float[Tensor, "batch *field"], target: Float[Tensor, "batch *field"]
) -> Float[Tensor, " batch"]:
    """Return |predicted - target|_2 / |target|_2 of every sample, over all points and channels.

    This is the figure that the paper's tables call MSE.
    """
    difference = linalg.vector_norm((predicted - target).flatten(1), dim=1)
    return difference / linalg.vector_norm(target.flatten(1), dim=1)
