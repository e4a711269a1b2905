import pytest
import torch
from torch import nn
from torch.nn import functional

from lsm_core.layers.convolution_block import ConvolutionConfig
from lsm_core.models.unet import Unet, UnetConfig
from lsm_core.problems.shape import ProblemShape


def test_there_are_as_many_parameters_as_in_the_paper():
    model = Unet(UnetConfig(), ProblemShape(space=(64, 64), n_inputs=1, n_outputs=1))
    assert sum(parameter.numel() for parameter in model.parameters()) == 4_332_257


def test_the_widths_double_up_to_the_last_scale_but_one():
    assert UnetConfig().widths == (32, 64, 128, 256, 256)
    assert UnetConfig(width=4, n_scales=3).widths == (4, 8, 8)
    assert UnetConfig(width=4, n_scales=1).widths == (4,)


def plainly(block, image):
    """Two convolutions, each with batch norm and ReLU, by torch's own layers."""
    for part in (block.first, block.second):
        image = functional.conv2d(image, part.convolution.weight, padding=1)
        norm = part.normalization
        image = functional.batch_norm(image, None, None, norm.weight, norm.bias, training=True)
        image = functional.relu(image)
    return image


def test_it_is_the_plain_u_net_written_with_torch_layers():
    torch.manual_seed(0)
    model = Unet(
        UnetConfig(width=3, n_scales=3), ProblemShape(space=(10, 8), n_inputs=2, n_outputs=2)
    )
    field = torch.randn(2, 10, 8, 2)

    coordinates = model.with_coordinates.coordinates.expand(2, -1, -1, -1)
    image = model.lift(torch.cat([field, coordinates], dim=-1)).movedim(-1, 1)
    scales = [plainly(model.first, functional.pad(image, (0, 0, 0, 2)))]
    scales += [coarser := plainly(model.down[0], functional.max_pool2d(scales[0], 2))]
    features = plainly(model.down[1], functional.max_pool2d(coarser, 2))
    for block, scale in zip(model.up, reversed(scales), strict=True):
        upper = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)(features)
        features = plainly(block.block, torch.cat([scale, upper], dim=1))
    points = model.last(features.movedim(1, -1)[:, :10])
    expected = model.head.output(functional.gelu(model.head.hidden(points)))

    torch.testing.assert_close(model(field), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalization", ["batch", "instance", "none"])
@pytest.mark.parametrize("space", [(11,), (9, 12), (5, 8, 6)])
def test_every_parameter_has_a_gradient_on_any_grid(space, normalization):
    torch.manual_seed(0)
    convolution = ConvolutionConfig(normalization=normalization)
    config = UnetConfig(width=4, n_scales=3, convolution=convolution)
    model = Unet(config, ProblemShape(space=space, n_inputs=2, n_outputs=3))
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="width must be at least 1"):
        UnetConfig(width=0)
    with pytest.raises(ValueError, match="take fewer scales"):
        Unet(UnetConfig(), ProblemShape(space=(16, 7), n_inputs=1, n_outputs=1))
