import pytest
import torch
from torch.nn import functional

from lsm_core.models.resnet import ResidualBlock, Resnet, ResnetConfig
from lsm_core.problems.shape import ProblemShape


def problem(*space, n_inputs=1, n_outputs=1):
    return ProblemShape(space=space, n_inputs=n_inputs, n_outputs=n_outputs)


def test_the_number_of_parameters_is_that_of_the_settings():
    model = Resnet(ResnetConfig(), problem(64, 64))
    assert sum(parameter.numel() for parameter in model.parameters()) == 20_260_417


def test_the_widths_double_from_stage_to_stage():
    assert ResnetConfig().widths == (64,) * 3 + (128,) * 4 + (256,) * 4 + (512,) * 3


@pytest.mark.parametrize("n_outputs", [2, 3])
def test_a_block_adds_two_layers_to_what_came_in(n_outputs):
    torch.manual_seed(0)
    block = ResidualBlock(2, 2, n_outputs, "batch")
    image = torch.randn(3, 2, 5, 6)
    features = image
    for layer in block.layers:
        features = functional.conv2d(features, layer.convolution.layer.weight, padding=1)
        features = functional.batch_norm(features, None, None, training=True)
        features = functional.leaky_relu(features, 0.1)
    skipped = image
    if n_outputs != 2:
        kernel = block.skip.layer
        skipped = functional.leaky_relu(
            functional.conv2d(image, kernel.weight, kernel.bias, padding=1), 0.1
        )
    expected = (features + skipped).movedim(1, -1)
    torch.testing.assert_close(block(image.movedim(1, -1)), expected, rtol=1e-4, atol=1e-5)


def test_a_change_travels_two_points_a_block_and_one_more():
    torch.manual_seed(0)
    model = Resnet(ResnetConfig(width=4, n_blocks=(1, 1)), problem(20)).eval()
    field = torch.randn(1, 20, 1)
    changed = field.clone()
    changed[:, 9] += 10
    difference = (model(changed) - model(field)).abs()[0, :, 0]
    assert (difference > 1e-8).nonzero().flatten().tolist() == list(range(4, 15))


@pytest.mark.parametrize("normalization", ["batch", "instance", "none"])
@pytest.mark.parametrize("space", [(11,), (9, 6), (5, 4, 6)])
def test_every_parameter_has_a_gradient_on_any_grid(space, normalization):
    config = ResnetConfig(width=4, n_blocks=(1, 2), normalization=normalization)
    model = Resnet(config, problem(*space, n_inputs=2, n_outputs=3))
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="n_blocks must be positive"):
        ResnetConfig(n_blocks=(3, 0))
