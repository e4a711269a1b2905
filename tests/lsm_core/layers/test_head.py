import torch
from torch import nn
from torch.nn import functional

from lsm_core.layers.head import Head
from lsm_core.layers.kernels import perceptron


def test_the_head_is_a_perceptron_after_the_linear_map_before_it():
    torch.manual_seed(0)
    network, before = Head(3, 16, 2), nn.Linear(3, 3)
    features = torch.randn(2, 4, 5, 3)
    hidden = functional.gelu(network.hidden(before(features)))
    torch.testing.assert_close(network(features, before), network.output(hidden))


def test_its_gradients_are_right_also_when_points_come_in_parts(monkeypatch):
    monkeypatch.setattr(perceptron, "_CHUNK", 48)  # three points at a time
    torch.manual_seed(0)
    network = Head(3, 16, 2).double()
    features = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    parameters = list(network.parameters())

    def outputs(*values):
        return network(values[0])

    assert torch.autograd.gradcheck(outputs, (features, *parameters))
