"""The 3-wide convolution of a field."""

from jaxtyping import Float
from torch import Tensor

from lsm_core.layers.by_dimension import plain_convolution
from lsm_core.layers.forms import suits_kernels
from lsm_core.layers.kernels.convolution import convolve_prepared
from lsm_core.layers.padding import Boundary, wrap
from lsm_core.layers.shapes import Features, Field


def convolve(
    field: Field,
    weight: Float[Tensor, "feature channel *kernel"],
    bias: Float[Tensor, " feature"] | None = None,
    boundary: Boundary = "zero",
) -> Features:
    """Return the 3-wide convolution of a field, with zeros or its other end beyond each end."""
    if suits_kernels(field):
        return convolve_prepared(lambda unchanged: unchanged, (field,), weight, bias, boundary)
    if boundary == "circular":
        return plain_convolution(wrap(field), weight, bias, padding=0)
    return plain_convolution(field, weight, bias, padding=1)
