import pytest
import torch

from lsm_core.layers.axis_products import along_axis


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(("axis", "indices"), [(0, "nbcd"), (1, "ancd"), (2, "abnd"), (3, "abcn")])
def test_the_values_along_an_axis_become_products(axis, indices, dtype):
    torch.manual_seed(0)
    field = torch.randn(2, 3, 4, 5, dtype=dtype)
    matrix = torch.randn(6, field.shape[axis], dtype=dtype)
    summed = "abcd"[axis]
    expected = torch.einsum(f"n{summed},abcd->{indices}", matrix, field)
    torch.testing.assert_close(along_axis(matrix, field, axis), expected)


def test_a_field_that_is_not_contiguous_gives_the_same():
    field = torch.randn(4, 3, 2).transpose(0, 2)
    matrix = torch.randn(5, 3)
    torch.testing.assert_close(
        along_axis(matrix, field, 1), along_axis(matrix, field.contiguous(), 1)
    )


def test_the_gradient_of_the_product_is_right():
    matrix = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    field = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *values: along_axis(*values, 1), (matrix, field))
