"""The fields that go from layer to layer: channels last, on a grid of any dimension."""

from jaxtyping import Float
from torch import Tensor

Field = Float[Tensor, "batch *space channel"]
Features = Float[Tensor, "batch *space feature"]
"""A field with other channels than the one it was made from."""
Inputs = Float[Tensor, "batch *space input"]
Outputs = Float[Tensor, "batch *space output"]
