import pytest
import torch
from torch.nn import functional

from lsm_core.models.ufno import FourierLayer, SmallUnet, Ufno, UfnoConfig
from lsm_core.problems.shape import ProblemShape


def problem(*space, n_inputs=1, n_outputs=1):
    return ProblemShape(space=space, n_inputs=n_inputs, n_outputs=n_outputs)


def test_there_are_as_many_parameters_as_in_the_paper():
    model = Ufno(UfnoConfig(), problem(64, 64))
    assert sum(parameter.numel() for parameter in model.parameters()) == 3_990_401


def test_the_small_u_net_is_that_of_torch_layers_on_a_grid_of_odd_sizes():
    torch.manual_seed(0)
    unet = SmallUnet(UfnoConfig(width=3), n_dims=2)
    field = torch.randn(2, 13, 10, 3)

    def down(layer, image):
        image = functional.conv2d(
            image, layer.convolution.layer.weight, stride=layer.convolution.stride, padding=1
        )
        return functional.leaky_relu(functional.batch_norm(image, None, None, training=True), 0.1)

    def up(layer, image, like):
        kernel = layer.convolution.layer
        image = functional.conv_transpose2d(image, kernel.weight, kernel.bias, 2, 1)
        image = functional.leaky_relu(image, 0.1)[..., : like.shape[2], : like.shape[3]]
        return torch.cat([like, image], dim=1)

    finest = field.movedim(-1, 1)
    half = down(unet.down[0], finest)
    quarter = down(unet.down[1][1], down(unet.down[1][0], half))
    eighth = down(unet.down[2][1], down(unet.down[2][0], quarter))
    assert eighth.shape[2:] == (2, 2)
    joined = up(unet.up[2], up(unet.up[1], up(unet.up[0], eighth, quarter), half), finest)
    kernel = unet.output.layer
    expected = functional.conv2d(joined, kernel.weight, kernel.bias, padding=1).movedim(1, -1)

    torch.testing.assert_close(unet(field), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("with_unet", [False, True])
def test_a_layer_is_relu_of_the_sum_of_its_maps(with_unet):
    torch.manual_seed(0)
    layer = FourierLayer(UfnoConfig(width=3), (2, 2), with_unet=with_unet)
    field = torch.randn(2, 8, 9, 3)
    total = layer.spectral(field) + layer.local(field)
    if with_unet:
        total = total + layer.unet(field)
    torch.testing.assert_close(layer(field), functional.relu(total))


def test_the_last_layers_have_a_u_net():
    model = Ufno(UfnoConfig(width=2, n_modes=2, n_fourier_layers=2, n_unet_layers=1), problem(8))
    assert [layer.unet is not None for layer in model.layers] == [False, False, True]


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("space", [(11,), (9, 6), (5, 4, 6)])
def test_every_parameter_has_a_gradient_on_any_grid(space, padding):
    torch.manual_seed(0)
    config = UfnoConfig(width=4, n_modes=2, n_fourier_layers=1, n_unet_layers=1, padding=padding)
    model = Ufno(config, problem(*space, n_inputs=2, n_outputs=3))
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="n_unet_layers must be at least 1"):
        UfnoConfig(n_unet_layers=0)
    with pytest.raises(ValueError, match="padding must not be negative"):
        UfnoConfig(padding=-1)
    with pytest.raises(ValueError, match="one number for each axis"):
        Ufno(UfnoConfig(n_modes=(3, 3)), problem(8))
