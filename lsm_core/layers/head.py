"""The pointwise network that turns features into the fields that are asked for."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.forms import suits_kernels
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
        """Return the outputs of every point, after a linear map `before` it if there is one.

        The kernel merges the two maps before the activation, which changes nothing but the work.
        """
        if not suits_kernels(features):
            features = features if before is None else before(features)
            return self.output(functional.gelu(self.hidden(features)))
        weight: Tensor = self.hidden.weight
        bias: Tensor = self.hidden.bias
        if before is not None:
            weight, bias = weight @ before.weight, weight @ before.bias + bias
        return perceptron(features, weight, bias, self.output.weight, self.output.bias)
