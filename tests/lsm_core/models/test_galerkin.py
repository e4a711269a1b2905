import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from lsm_core.models.galerkin import Galerkin, GalerkinAttention, GalerkinConfig
from lsm_core.problems.shape import ProblemShape

GRIDS = st.one_of(
    st.tuples(st.integers(4, 40)),
    st.tuples(st.integers(4, 20), st.integers(4, 20)),
    st.tuples(st.integers(4, 9), st.integers(4, 9), st.integers(4, 9)),
)
SMALL = GalerkinConfig(width=8, n_layers=2, n_heads=2, decoder_width=4, n_modes=2, head_width=8)


def n_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_size_is_within_three_percent_of_the_paper():
    model = Galerkin(GalerkinConfig(), ProblemShape(space=(256, 256), n_inputs=1, n_outputs=1))
    assert n_parameters(model) == 6_145_121
    assert n_parameters(model) == pytest.approx(6.319e6, rel=0.03)


@settings(max_examples=10, deadline=None)
@given(GRIDS, st.integers(1, 3))
def test_the_output_has_the_grid_of_the_input_and_every_parameter_a_gradient(space, coarsening):
    torch.manual_seed(0)
    shape = ProblemShape(space=space, n_inputs=2, n_outputs=3)
    config = GalerkinConfig(
        width=8,
        n_layers=2,
        n_heads=2,
        coarsening=coarsening,
        decoder_width=4,
        n_modes=2,
        head_width=8,
    )
    model = Galerkin(config, shape)
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_attention_is_on_the_coarser_grid():
    model = Galerkin(SMALL, ProblemShape(space=(9, 14), n_inputs=1, n_outputs=1))
    assert model.coarse == (5, 7)
    assert model.positions.shape == (35, 2)
    assert model.positions[-1].tolist() == [1, 1]


def test_every_point_sees_every_other():
    torch.manual_seed(0)
    model = Galerkin(SMALL, ProblemShape(space=(32,), n_inputs=1, n_outputs=1))
    # Without Fourier layers only the attention reaches beyond a few points.
    with torch.no_grad():
        for spectral in model.decoder.spectral:
            spectral.weight.zero_()
    field = torch.randn(1, 32, 1, requires_grad=True)
    model(field)[0, 0, 0].backward()
    assert field.grad[0, -1].abs() > 1e-9


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="n_modes must be at least 1"):
        GalerkinConfig(n_modes=(3, 0))
    with pytest.raises(ValueError, match="coarsening must be at least 1"):
        GalerkinConfig(coarsening=0)
    with pytest.raises(ValueError, match="multiple of n_heads"):
        GalerkinConfig(width=30)
    with pytest.raises(ValueError, match="one number for each axis"):
        Galerkin(GalerkinConfig(n_modes=(3, 3)), ProblemShape(space=(8,), n_inputs=1, n_outputs=1))


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
