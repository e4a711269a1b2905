import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lsm_core.layers.galerkin_attention import GalerkinAttention


def build(width=6, n_heads=2, n_dims=2):
    """Return a layer in float64 whose weights are all random."""
    torch.manual_seed(0)
    layer = GalerkinAttention(width, n_heads, n_dims).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


def by_definition(layer, points, positions):
    """Return the attention of one sample as sums over pairs of points, head by head."""
    n_points, width = points.shape
    head_width = width // layer.n_heads
    heads = []
    for head in range(layer.n_heads):
        channels = slice(head * head_width, (head + 1) * head_width)
        rows = {}
        for name in ("query", "key", "value"):
            projection = getattr(layer, name)
            values = points @ projection.weight[channels].T + projection.bias[channels]
            if name != "query":
                norm = getattr(layer, f"{name}_norm")
                mean = values.mean(1, keepdim=True)
                variance = ((values - mean) ** 2).mean(1, keepdim=True)
                values = (values - mean) / torch.sqrt(variance + 1e-5)
                values = values * norm.weight[head] + norm.bias[head]
            rows[name] = torch.cat([positions, values], dim=1)
        scores = rows["query"] @ rows["key"].T  # (point, point)
        heads.append(
            torch.stack(
                [
                    sum(scores[i, j] * rows["value"][j] for j in range(n_points)) / n_points
                    for i in range(n_points)
                ]
            )
        )
    return torch.cat(heads, dim=1) @ layer.output.weight.T + layer.output.bias


def test_attention_equals_its_definition():
    layer = build()
    points = torch.randn(2, 7, 6, dtype=torch.float64)
    positions = torch.rand(7, 2, dtype=torch.float64)
    result = layer(points, positions)
    for sample in range(2):
        expected = by_definition(layer, points[sample], positions)
        torch.testing.assert_close(result[sample], expected, atol=1e-12, rtol=1e-12)


def n_operations(n_points):
    layer = build()
    with FlopCounterMode(display=False) as counter:
        layer(torch.zeros(1, n_points, 6).double(), torch.zeros(n_points, 2).double())
    return counter.get_total_flops()


def test_twice_as_many_points_cost_twice_as_much():
    assert n_operations(2000) == 2 * n_operations(1000) > 0


def test_the_order_of_the_points_does_not_matter():
    layer = build()
    points = torch.randn(1, 9, 6, dtype=torch.float64)
    positions = torch.rand(9, 2, dtype=torch.float64)
    order = torch.randperm(9)
    torch.testing.assert_close(
        layer(points[:, order], positions[order]), layer(points, positions)[:, order]
    )


def test_the_gradient_of_attention_is_right():
    layer = build(width=4)
    points = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    positions = torch.rand(3, 2, dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]

    def apply(points, *weights):
        replaced = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(layer, replaced, (points, positions))

    assert torch.autograd.gradcheck(apply, (points, *layer.parameters()), fast_mode=True)


def test_channels_that_the_heads_cannot_share_are_refused():
    with pytest.raises(ValueError, match="6 channels cannot be shared out between 4 heads"):
        GalerkinAttention(6, 4, 1)
