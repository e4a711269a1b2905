import pytest
import torch
from torch.nn import functional

from lsm_core.layers.convolution import convolve
from lsm_core.layers.kernels import convolution
from lsm_core.layers.kernels.convolution import convolve_prepared
from lsm_core.layers.padding import wrap

PLAIN = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def plainly_convolved(field, weight, bias, boundary):
    image = field.movedim(-1, 1)
    n_dims = image.ndim - 2
    mode = "circular" if boundary == "circular" else "constant"
    image = functional.pad(image, [1] * 2 * n_dims, mode=mode)
    return PLAIN[n_dims](image, weight, bias).movedim(1, -1)


def value_and_gradients(convolved, inputs, boundary):
    result = convolved(*inputs, boundary)
    return [result, *torch.autograd.grad((result**3).sum(), inputs)]


# The last two have enough channels for Winograd's form; odd sizes do not allow it.
SIZES = [
    ((7,), 3, 5),
    ((5, 6), 3, 4),
    ((3, 4, 5), 2, 3),
    ((4, 3), 40, 7),
    ((1, 2), 3, 4),
    ((1, 1, 1), 3, 4),
    ((2, 1, 1), 20, 4),
    ((130, 140), 2, 3),
    ((70, 65), 20, 6),
    ((128,), 128, 128),
    ((12, 12), 128, 130),
    ((11, 12), 128, 130),
]


@pytest.mark.parametrize("boundary", ["zero", "circular"])
@pytest.mark.parametrize(("space", "n_inputs", "n_outputs"), SIZES)
def test_values_and_gradients_are_those_of_torch(space, n_inputs, n_outputs, boundary):
    torch.manual_seed(0)
    field = torch.randn(2, *space, n_inputs, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(
        n_outputs, n_inputs, *[3] * len(space), dtype=torch.float64, requires_grad=True
    )
    bias = torch.randn(n_outputs, dtype=torch.float64, requires_grad=True)
    found = value_and_gradients(convolve, (field, weight, bias), boundary)
    expected = value_and_gradients(plainly_convolved, (field, weight, bias), boundary)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11 * theirs.abs().max().item())


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("boundary", ["zero", "circular"])
@pytest.mark.parametrize(("space", "n_inputs", "n_outputs"), SIZES[-4:])
def test_the_form_for_any_processor_gives_the_same_in_float32(
    space, n_inputs, n_outputs, boundary, narrow, monkeypatch
):
    monkeypatch.setattr(convolution, "has_narrow_products", lambda: narrow)
    torch.manual_seed(0)
    field = torch.randn(2, *space, n_inputs, requires_grad=True)
    weight = torch.randn(n_outputs, n_inputs, *[3] * len(space), requires_grad=True)
    bias = torch.randn(n_outputs, requires_grad=True)
    exact = [each.detach().double().requires_grad_() for each in (field, weight, bias)]
    found = value_and_gradients(convolve, (field, weight, bias), boundary)
    expected = value_and_gradients(plainly_convolved, exact, boundary)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm() < 1e-5 * theirs.norm()


def test_gradients_reach_what_the_field_is_prepared_from():
    field = torch.randn(2, 6, 4, 3, dtype=torch.float64, requires_grad=True)
    scale = torch.randn(3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, 3, 3, dtype=torch.float64, requires_grad=True)

    def prepare(values, factor):
        return torch.tanh(values * factor)

    def convolved(values, factor, kernel):
        return convolve_prepared(prepare, (values, factor), kernel, None, "circular")

    assert torch.autograd.gradcheck(convolved, (field, scale, weight))


def test_a_circular_convolution_commutes_with_shifts():
    field, weight = torch.randn(1, 8, 6, 2), torch.randn(3, 2, 3, 3)
    shifted = convolve(field.roll(3, dims=1), weight, None, "circular")
    expected = convolve(field, weight, None, "circular").roll(3, dims=1)
    torch.testing.assert_close(shifted, expected)


def test_wrapping_continues_a_field_by_its_other_end():
    wide = wrap(torch.arange(6.0).reshape(1, 2, 3, 1))[0, :, :, 0]
    expected = [[5, 3, 4, 5, 3], [2, 0, 1, 2, 0], [5, 3, 4, 5, 3], [2, 0, 1, 2, 0]]
    assert wide.tolist() == expected
