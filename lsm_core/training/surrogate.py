"""A trained model as its users see it: physical values in, physical values out."""

from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.training.normalization import Normalization


class Surrogate(nn.Module):
    """A model between the normalisations of its inputs and outputs."""

    def __init__(self, model: nn.Module, inputs: Normalization, outputs: Normalization) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.outputs = outputs

    def forward(
        self, values: Float[Tensor, "batch *space n_inputs"]
    ) -> Float[Tensor, "batch *space n_outputs"]:
        """Return predicted fields in physical units."""
        return self.outputs.decode(self.model(self.inputs.encode(values)))
