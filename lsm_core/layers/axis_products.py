"""Products of a matrix with the values along one axis of a field."""

from jaxtyping import Num
from torch import Tensor, bmm


def along_axis(
    matrix: Num[Tensor, "new old"], field: Num[Tensor, "..."], axis: int
) -> Num[Tensor, "..."]:
    """Return the field with the values along an axis replaced by the products of the matrix.

    Nothing is copied before the product if the field is contiguous.
    """
    n_new, n_old = matrix.shape
    before, after = field.shape[:axis], field.shape[axis + 1 :]
    columns = field.reshape(before.numel(), n_old, after.numel())
    products = bmm(matrix.expand(len(columns), -1, -1), columns)
    return products.view(*before, n_new, *after)
