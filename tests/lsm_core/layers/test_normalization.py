import pytest
import torch
from torch import nn

from lsm_core.layers.normalization import NORMALIZATIONS


def test_batch_statistics_and_running_statistics_are_those_of_torch():
    torch.manual_seed(0)
    ours, theirs = NORMALIZATIONS["batch"](3), nn.BatchNorm2d(3)
    field = 2 + 3 * torch.randn(4, 5, 6, 3)
    normalize = ours.function()
    found = normalize(field, *ours.parameters_in_use())
    torch.testing.assert_close(found, theirs(field.movedim(-1, 1)).movedim(1, -1))
    normalize(field, *ours.parameters_in_use())  # as for a backward pass: counts no second time
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)


def test_batch_normalisation_computed_again_has_the_same_values_and_gradients():
    torch.manual_seed(0)
    ours = NORMALIZATIONS["batch"](3).double()
    for value in (ours.weight.data, ours.bias.data):
        value.normal_()
    field = (2 + 3 * torch.randn(4, 5, 3, dtype=torch.float64)).requires_grad_()
    outer = torch.randn(4, 5, 3, dtype=torch.float64)
    normalize = ours.function()
    wanted = (field, ours.weight, ours.bias)
    first, again = (normalize(*wanted) for _ in range(2))
    torch.testing.assert_close(again, first)
    for one, other in zip(
        *(torch.autograd.grad(y, wanted, outer) for y in (first, again)), strict=True
    ):
        torch.testing.assert_close(other, one)


def test_one_point_has_no_batch_statistics():
    ours = NORMALIZATIONS["batch"](3)
    with pytest.raises(ValueError, match="more than one point"):
        ours.function()(torch.randn(1, 1, 3), *ours.parameters_in_use())
    assert torch.isfinite(ours.running_var).all()


def test_in_eval_mode_batch_normalisation_is_folded_into_the_convolution():
    torch.manual_seed(0)
    ours = NORMALIZATIONS["batch"](3).eval()
    for value in (ours.weight.data, ours.bias.data, ours.running_mean):
        value.normal_()
    ours.running_var.uniform_(0.5, 2)
    weight, features = torch.randn(3, 2), torch.randn(7, 2)
    folded, shift = ours.folded_into(weight, None)
    theirs = nn.BatchNorm1d(3).eval()
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(features @ folded.T + shift, theirs(features @ weight.T))


def test_instance_normalisation_uses_the_statistics_of_one_sample():
    torch.manual_seed(0)
    ours, theirs = NORMALIZATIONS["instance"](3), nn.InstanceNorm2d(3)
    field = torch.randn(4, 5, 6, 3)
    found = ours.function()(field, *ours.parameters_in_use())
    torch.testing.assert_close(found, theirs(field.movedim(-1, 1)).movedim(1, -1))
