import pytest
import torch
from torch import nn

from lsm_core.layers.strided_convolution import (
    Convolution,
    LeakyConvolution,
    LeakyTransposedConvolution,
    TransposedConvolution,
)

SPACES = [(9,), (6, 5), (3, 4, 5)]
PLAIN = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
BATCH_NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
INSTANCE_NORM = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}


def channels_last(layer, field):
    return layer(field.movedim(-1, 1)).movedim(1, -1)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel_size", [3, 5])
@pytest.mark.parametrize("space", SPACES)
def test_a_convolution_is_that_of_torch(space, kernel_size, stride):
    layer = Convolution(len(space), 2, 3, kernel_size=kernel_size, stride=stride)
    plain = PLAIN[len(space)](2, 3, kernel_size, stride=stride, padding=kernel_size // 2)
    plain.load_state_dict(layer.layer.state_dict())
    field = torch.randn(2, *space, 2)
    torch.testing.assert_close(layer(field), channels_last(plain, field))


@pytest.mark.parametrize("space", SPACES)
def test_a_transposed_convolution_is_that_of_torch_and_doubles_every_axis(space):
    layer = TransposedConvolution(len(space), 2, 3)
    plain = TRANSPOSED[len(space)](2, 3, 4, stride=2, padding=1)
    plain.load_state_dict(layer.layer.state_dict())
    field = torch.randn(2, *space, 2)
    torch.testing.assert_close(layer(field), channels_last(plain, field))
    assert layer(field).shape[1:-1] == tuple(2 * size for size in space)


@pytest.mark.parametrize("space", SPACES)
def test_a_leaky_transposed_convolution_gives_back_the_axes_that_a_stride_halved(space):
    layer = LeakyTransposedConvolution(len(space), 3, 2)
    halved = Convolution(len(space), 2, 3, stride=2)(torch.randn(2, *space, 2))
    whole = layer.convolution(halved)[(slice(None), *map(slice, space))]
    assert whole.shape == (2, *space, 2)
    torch.testing.assert_close(layer(halved, space), torch.where(whole > 0, whole, 0.1 * whole))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("normalization", "table"), [("batch", BATCH_NORM), ("instance", INSTANCE_NORM)]
)
@pytest.mark.parametrize("space", SPACES)
def test_a_leaky_convolution_is_that_of_torch(space, normalization, table, training):
    torch.manual_seed(0)
    n_dims = len(space)
    layer = LeakyConvolution(n_dims, 2, 3, stride=2, normalization=normalization)
    norm = table[n_dims](3, affine=True)
    plain = nn.Sequential(
        PLAIN[n_dims](2, 3, 3, stride=2, padding=1, bias=False), norm, nn.LeakyReLU(0.1)
    )
    plain[0].load_state_dict(layer.convolution.layer.state_dict())
    for model in (layer.normalization, norm):
        model.weight.data = torch.tensor([1.0, 2.0, -1.0])
        model.bias.data = torch.tensor([0.1, 0.2, 0.3])
    for _ in range(2):  # the running statistics must follow too
        field = torch.randn(2, *space, 2)
        torch.testing.assert_close(layer(field), channels_last(plain, field))
    layer.train(training)
    plain.train(training)
    torch.testing.assert_close(layer(field), channels_last(plain, field))


@pytest.mark.parametrize("space", [(5,), (3, 4), (2, 3, 2)])
@pytest.mark.parametrize("kind", [Convolution, TransposedConvolution, LeakyConvolution])
def test_gradients_are_those_of_finite_differences(kind, space):
    torch.manual_seed(0)
    options = {} if kind is TransposedConvolution else {"stride": 2}
    layer = kind(len(space), 2, 2, **options).double()
    field = torch.randn(2, *space, 2, dtype=torch.float64, requires_grad=True)
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(field, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), field)

    assert torch.autograd.gradcheck(run, (field, *values), fast_mode=True)


def test_an_even_width_is_refused():
    with pytest.raises(ValueError, match="kernel_size must be odd"):
        Convolution(1, 2, 3, kernel_size=4)
