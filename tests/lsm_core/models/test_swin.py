import pytest
import torch
from torch.nn import functional

from lsm_core.layers.window_attention import WindowLayer, Windows
from lsm_core.models.swin import Swin, SwinConfig
from lsm_core.problems.shape import ProblemShape


def problem(*space, n_inputs=1, n_outputs=1):
    return ProblemShape(space=space, n_inputs=n_inputs, n_outputs=n_outputs)


def test_there_are_about_as_many_parameters_as_in_the_paper():
    model = Swin(SwinConfig(), problem(64, 64))
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert n_parameters == 551_956
    assert n_parameters == pytest.approx(538_000, rel=0.05)


def test_a_block_adds_attention_and_perceptron_of_normalised_tokens():
    torch.manual_seed(0)
    config = SwinConfig(width=8, n_heads=2, window=3)
    windows = Windows(space=(5, 4), window=(config.window,) * 2, shifted=True)
    n_hidden = config.expansion * config.width
    block = WindowLayer(config.width, n_hidden, config.n_heads, windows)
    tokens = torch.randn(2, 5, 4, 8)
    between = tokens + block.attention(functional.layer_norm(tokens, (8,)))
    normalised = functional.layer_norm(between, (8,))
    hidden = functional.gelu(block.perceptron.hidden(normalised))
    expected = between + block.perceptron.output(hidden)
    torch.testing.assert_close(block(tokens), expected)


def reach(n_blocks):
    """Which points change with the one at 6, for patches of two points, windows of two patches."""
    torch.manual_seed(0)
    config = SwinConfig(width=8, n_blocks=n_blocks, n_heads=2, window=2)
    model = Swin(config, problem(16))
    field = torch.randn(1, 16, 1)
    changed = field.clone()
    changed[:, 6] += 1
    difference = (model(changed) - model(field)).abs()[0, :, 0]
    return (difference > 1e-7).nonzero().flatten().tolist()


def test_shifted_windows_carry_a_change_beyond_the_first_window():
    assert reach(n_blocks=1) == [4, 5, 6, 7]
    assert reach(n_blocks=2) == list(range(2, 10))


def test_each_token_is_made_of_its_own_patch_and_each_point_of_its_own_token():
    torch.manual_seed(0)
    config = SwinConfig(width=8, n_blocks=1, n_heads=2, window=2, patch=2)
    model = Swin(config, problem(4, 6, n_outputs=2))
    for block in model.blocks:
        torch.nn.init.zeros_(block.attention.output.weight)
        torch.nn.init.zeros_(block.attention.output.bias)
    field = torch.randn(1, 4, 6, 1)
    changed = field.clone()
    changed[:, 2, 5] += 1
    difference = (model(changed) - model(field)).abs().amax(dim=(0, 3)) > 1e-7
    expected = torch.zeros(4, 6, dtype=torch.bool)
    expected[2:4, 4:6] = True
    assert torch.equal(difference, expected)


@pytest.mark.parametrize("patch", [1, 2])
@pytest.mark.parametrize("space", [(11,), (9, 6), (5, 4, 7)])
def test_every_parameter_has_a_gradient_on_any_grid(space, patch):
    torch.manual_seed(0)
    config = SwinConfig(width=8, n_blocks=2, n_heads=2, window=3, patch=patch)
    model = Swin(config, problem(*space, n_inputs=2, n_outputs=3))
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="window must be at least 2"):
        SwinConfig(window=1)
    with pytest.raises(ValueError, match="must be a multiple of n_heads"):
        SwinConfig(width=10)
