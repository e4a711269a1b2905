import pytest
import torch
from torch.nn import functional

from lsm_core.models.tfnet import ScaleSeparation, Tfnet, TfnetConfig
from lsm_core.problems.shape import ProblemShape


def test_the_number_of_parameters_is_that_of_the_settings():
    model = Tfnet(TfnetConfig(), ProblemShape(space=(64, 64), n_inputs=10, n_outputs=1))
    assert sum(parameter.numel() for parameter in model.parameters()) == 7_445_418


@pytest.mark.parametrize("space", [(9,), (6, 7), (4, 5, 6)])
def test_the_three_parts_add_up_to_the_frames(space):
    separation = ScaleSeparation(len(space), n_frames=5, window=3)
    torch.nn.init.normal_(separation.spatial)
    frames = torch.randn(2, *space, 5)
    parts = separation(frames)
    torch.testing.assert_close(sum(parts), frames[..., 2:])
    assert all(part.abs().max() > 0.01 for part in parts)


def test_the_mean_is_over_neighbours_and_over_the_frames_of_a_window():
    separation = ScaleSeparation(1, n_frames=4, window=3)
    separation.temporal.data = torch.tensor([0.2, 0.3, 0.5])
    frames = torch.zeros(1, 5, 4)
    frames[0, 2, 1] = 3.0
    mean, tilde, prime = separation(frames)
    expected = torch.tensor([[0.0, 0.0], [0.3, 0.2], [0.3, 0.2], [0.3, 0.2], [0.0, 0.0]])
    torch.testing.assert_close(mean[0], expected)
    torch.testing.assert_close(tilde, -mean)  # the last two frames are zero
    assert prime.abs().max() == 0


@pytest.mark.parametrize("space", [(5,), (3, 4)])
def test_gradients_of_the_separation_are_those_of_finite_differences(space):
    separation = ScaleSeparation(len(space), n_frames=4, window=2).double()
    names, values = zip(*separation.named_parameters(), strict=True)
    frames = torch.randn(1, *space, 4, dtype=torch.float64, requires_grad=True)

    def run(frames, *values):
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(separation, parameters, frames)

    assert torch.autograd.gradcheck(run, (frames, *values), fast_mode=True)


def test_a_history_shorter_than_the_window_has_one_mean():
    mean, _, _ = ScaleSeparation(1, n_frames=2, window=6)(torch.randn(3, 8, 2))
    assert mean.shape == (3, 8, 1)


def test_the_features_of_the_three_parts_are_summed_at_every_scale():
    torch.manual_seed(0)
    config = TfnetConfig(width=4, n_scales=3, window=2, normalization="none")
    model = Tfnet(config, ProblemShape(space=(10, 7), n_inputs=3, n_outputs=2))
    field = torch.randn(2, 10, 7, 3)

    def leaky(image):
        return functional.leaky_relu(image, 0.1)

    scales = [0, 0, 0]
    for encoder, part in zip(model.encoders, model.separation(field), strict=True):
        image = part.movedim(-1, 1)
        for i, layer in enumerate(encoder.layers):
            kernel = layer.convolution.layer
            image = leaky(functional.conv2d(image, kernel.weight, kernel.bias, 2, 1))
            scales[i] = scales[i] + image
    image = scales[2]
    layers = [*model.decoder.layers, model.decoder.last]
    for layer, scale in zip(layers, [scales[1], scales[0], None], strict=True):
        kernel = layer.convolution.layer
        image = leaky(functional.conv_transpose2d(image, kernel.weight, kernel.bias, 2, 1))
        image = (
            image[..., :10, :7]
            if scale is None
            else image[..., : scale.shape[2], : scale.shape[3]] + scale
        )
    joined = torch.cat([field.movedim(-1, 1), image], dim=1)
    kernel = model.output.layer
    expected = functional.conv2d(joined, kernel.weight, kernel.bias, padding=1).movedim(1, -1)

    torch.testing.assert_close(model(field), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_inputs", [1, 4])
@pytest.mark.parametrize("space", [(11,), (9, 6), (5, 4, 6)])
def test_every_parameter_has_a_gradient_on_any_grid(space, n_inputs):
    torch.manual_seed(0)
    config = TfnetConfig(width=4, n_scales=2, window=3)
    model = Tfnet(config, ProblemShape(space=space, n_inputs=n_inputs, n_outputs=3))
    predicted = model(torch.randn(2, *space, n_inputs))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="width must be at least 2"):
        TfnetConfig(width=1)
