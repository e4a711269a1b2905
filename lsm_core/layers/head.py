"""The pointwise network that turns features into the fields that are asked for."""

from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.kernels.perceptron import perceptron


class Head(nn.Module):
    """A pointwise perceptron with one hidden layer and GELU."""

    def __init__(self, n_features: int, n_hidden: int, n_outputs: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_features, n_hidden)
        self.output = nn.Linear(n_hidden, n_outputs)

    def forward(
        self, features: Float[Tensor, "*points feature"], before: nn.Linear | None = None
    ) -> Float[Tensor, "*points output"]:
        """Return the outputs of every point; a linear map `before` is merged into the first."""
        weight: Tensor = self.hidden.weight
        bias: Tensor = self.hidden.bias
        if before is not None:
            weight, bias = weight @ before.weight, weight @ before.bias + bias
        return perceptron(features, weight, bias, self.output.weight, self.output.bias)
