from math import atan2, hypot

import pytest
import torch

from lsm_core.layers.deformation import Deformation


def deformation(n_dims: int = 2, n_code: int = 5, width: int = 16) -> Deformation:
    torch.manual_seed(0)
    return Deformation(n_dims, n_code, width, center=0.5)


def test_points_are_described_by_position_angle_and_distance():
    described = deformation().describe(torch.tensor([[[0.2, 0.9]]]))
    expected = [0.2, 0.9, atan2(0.4, -0.3), hypot(0.3, 0.4)]
    assert described.flatten().tolist() == pytest.approx(expected)


@pytest.mark.parametrize("n_dims", [1, 2, 3])
@pytest.mark.parametrize("n_code", [0, 5])
def test_without_displacement_points_stay_where_they_are(n_dims, n_code):
    layer = deformation(n_dims, n_code)
    positions, code = torch.rand(3, 7, n_dims), torch.rand(3, n_code)
    assert not torch.equal(layer(positions, code), positions)
    with torch.no_grad():
        layer.perceptron[-1].weight.zero_()
        layer.perceptron[-1].bias.copy_(torch.full((n_dims,), 0.25))
    torch.testing.assert_close(layer(positions, code), 1.25 * positions)


def test_the_code_of_one_sample_moves_its_points_and_no_others():
    layer = deformation()
    positions, code = torch.rand(2, 7, 2), torch.rand(2, 5)
    before = layer(positions, code)
    code[1] += 1
    after = layer(positions, code)
    torch.testing.assert_close(after[0], before[0])
    assert (after[1] - before[1]).abs().min() > 0


def test_each_point_moves_by_itself():
    layer = deformation()
    positions, code = torch.rand(2, 7, 2), torch.rand(2, 5)
    together = layer(positions, code)
    torch.testing.assert_close(layer(positions[:, 3:4], code), together[:, 3:4])


@pytest.mark.parametrize("n_code", [0, 5])
def test_every_weight_gets_a_gradient(n_code):
    layer = deformation(n_code=n_code)
    layer(torch.rand(2, 7, 2), torch.rand(2, n_code)).square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in layer.parameters())
