from math import pi

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.models.sno import LowRankLayer, Sno, SnoConfig
from lsm_core.problems.shape import ProblemShape

GRIDS = st.one_of(
    st.tuples(st.integers(3, 40)),
    st.tuples(st.integers(3, 20), st.integers(3, 20)),
    st.tuples(st.integers(3, 9), st.integers(3, 9), st.integers(3, 9)),
)
BASES = st.sampled_from(["chebyshev", "fourier"])


@pytest.mark.parametrize(
    ("space", "expected"), [((256,), 30_017), ((256, 256), 92_481), ((32, 32, 32), 1_076_545)]
)
def test_the_number_of_parameters_is_that_of_the_matrices(space, expected):
    model = Sno(SnoConfig(), ProblemShape(space=space, n_inputs=1, n_outputs=1))
    n_dims, m, width = len(space), 16, 64
    layer = n_dims * m * m + width * width + m**n_dims * width
    perceptrons = (1 + 1) * width + 2 * (width + 1) * width + (width + 1)
    assert 4 * layer + perceptrons == expected
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@settings(max_examples=12, deadline=None)
@given(GRIDS, BASES)
def test_the_output_has_the_grid_of_the_input_and_every_parameter_a_gradient(space, basis):
    torch.manual_seed(0)
    shape = ProblemShape(space=space, n_inputs=2, n_outputs=3)
    model = Sno(SnoConfig(width=4, n_coefficients=5, basis=basis), shape)
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_a_layer_is_a_product_of_matrices():
    torch.manual_seed(0)
    layer = LowRankLayer(2, (3, 4)).double()
    torch.nn.init.normal_(layer.bias)
    first, second = layer.axes
    values = torch.randn(1, 3, 4, 2, dtype=torch.float64)
    for channel in range(2):
        mixed = sum(values[0, ..., i] * layer.channels[i, channel] for i in range(2))
        expected = torch.log(1 + torch.exp(first @ mixed @ second.T + layer.bias[..., channel]))
        torch.testing.assert_close(layer(values)[0, ..., channel], expected)


def test_the_gradient_of_a_layer_is_right():
    torch.manual_seed(0)
    layer = LowRankLayer(2, (3, 2)).double()
    values = torch.randn(1, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]

    def apply(values, *weights):
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), values)

    assert torch.autograd.gradcheck(apply, (values, *layer.parameters()), fast_mode=True)


@pytest.mark.parametrize("basis", ["chebyshev", "fourier"])
def test_the_same_weights_predict_the_same_function_on_a_finer_grid(basis):
    torch.manual_seed(0)
    config = SnoConfig(width=4, n_coefficients=9, basis=basis)
    # Every second point of the finer grid is one of the coarser.
    sizes = (31, 61) if basis == "chebyshev" else (32, 64)
    shapes = [ProblemShape(space=(size, size), n_inputs=1, n_outputs=1) for size in sizes]
    model, finer = (Sno(config, shape).double() for shape in shapes)
    finer.load_state_dict(model.state_dict())
    if basis == "chebyshev":
        x = torch.linspace(-1, 1, 61, dtype=torch.float64)
        field = (x**3)[:, None] * (1 - x**5)
    else:
        x = torch.arange(64, dtype=torch.float64) * 2 * pi / 64
        field = torch.sin(3 * x)[:, None] * torch.cos(2 * x)
    field = field[None, ..., None]
    torch.testing.assert_close(
        finer(field)[:, ::2, ::2], model(field[:, ::2, ::2]), atol=1e-10, rtol=0
    )


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="n_coefficients must be at least 1"):
        SnoConfig(n_coefficients=(3, 0))
    with pytest.raises(ValueError, match="one number for each axis"):
        Sno(SnoConfig(n_coefficients=(3, 3)), ProblemShape(space=(8,), n_inputs=1, n_outputs=1))
