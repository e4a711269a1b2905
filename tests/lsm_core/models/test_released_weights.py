from pathlib import Path

import numpy as np
import pytest
import torch

from lsm_core.models.released_weights import ReleasedSettings, from_released, renamed
from tests.lsm_core.models.released_options import settings_from
from tests.lsm_core.models.straightforward import StraightforwardLsm

REFERENCES = Path(__file__).parents[4] / "shared" / "reference"

# In each dimension one grid whose patches have fewer points than heads times tokens, one with more.
CASES = [
    {"in_dim": 2, "out_dim": 3, "patch_size": (3,), "padding": (11,), "space": (37,)},
    {"in_dim": 1, "out_dim": 1, "patch_size": (40,), "padding": (9,), "space": (631,)},
    {"in_dim": 1, "out_dim": 1, "patch_size": (2, 3), "padding": (0, 9), "space": (23, 48)},
    {"in_dim": 2, "out_dim": 1, "patch_size": (6, 6), "padding": (11, 0), "space": (96, 85)},
    {"in_dim": 1, "out_dim": 4, "patch_size": (2, 1, 1), "padding": (4, 5, 3)},
]


def straightforward(settings, width=8):
    """Return the plain model with weights and statistics that leave nothing at one or zero."""
    torch.manual_seed(0)
    options = {name: value for name, value in settings.items() if name != "space"}
    model = StraightforwardLsm(**options, d_model=width).double()
    for parameter in model.parameters():
        if parameter.ndim < 2:
            parameter.data.normal_(std=0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
    return model


def both_forms(settings):
    """Return the plain model and ours, equal in all weights."""
    # The padding of the last case is what a patch of a sixteenth of the axis leaves.
    plain = straightforward(_with_consistent_padding(settings))
    ours = from_released(plain.state_dict(), ReleasedSettings(**settings, d_model=8)).double()
    ours.load_state_dict(renamed(plain.state_dict()))
    return plain, ours


def _with_consistent_padding(settings):
    space = ReleasedSettings(**settings, d_model=8).grid
    padding = [-n % (16 * p) for n, p in zip(space, settings["patch_size"], strict=True)]
    return settings | {"padding": tuple(reversed(padding))}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("settings", CASES)
def test_values_and_gradients_are_those_of_the_straightforward_form(settings, training):
    plain, ours = both_forms(settings)
    grid = ReleasedSettings(**settings, d_model=8).grid
    field = torch.randn(2, *grid, settings["in_dim"], dtype=torch.float64, requires_grad=True)
    outputs, gradients = [], []
    for model in (plain.train(training), ours.train(training)):
        output = model(field)
        output.square().mean().backward()
        outputs.append(output)
        gradients.append(field.grad)
        field.grad = None
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-9, atol=1e-9)
    assert relative(gradients[1], gradients[0]) < 1e-9

    expected = renamed({name: value.grad for name, value in plain.named_parameters()})
    for name, parameter in ours.named_parameters():
        # The bias of the keys has no effect, and its gradient is a rounding error.
        if not name.endswith("projector.key.bias"):
            assert relative(parameter.grad, expected[name]) < 1e-9, name
    statistics = renamed(plain.state_dict())
    for name, buffer in ours.named_buffers():
        if "running" in name:
            torch.testing.assert_close(buffer, statistics[name], rtol=1e-9, atol=1e-9)


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def reference(name):
    with np.load(REFERENCES / f"{name}.npz") as file:
        values = {key: file[key] for key in file.files}
    groups = {
        group: {
            key.removeprefix(f"{group}/"): value
            for key, value in values.items()
            if key.startswith(f"{group}/")
        }
        for group in ("config", "state", "grad_norm")
    }
    return values, groups


@pytest.mark.skipif(not REFERENCES.exists(), reason="the released reference values are not here")
@pytest.mark.parametrize("name", ["lsm_2d", "lsm_3d"])
def test_outputs_of_the_released_model_are_reproduced(name):
    values, groups = reference(name)
    model = from_released(groups["state"], settings_from(groups["config"]))
    field = torch.from_numpy(values["input"])
    with torch.no_grad():
        found = model.eval()(field)
        assert relative(found, torch.from_numpy(values["eval_output"])) < 1e-5
        found = model.train()(field)
        assert relative(found, torch.from_numpy(values["train_output"])) < 1e-4


@pytest.mark.skipif(not REFERENCES.exists(), reason="the released reference values are not here")
def test_gradient_norms_of_the_released_model_are_reproduced():
    values, groups = reference("lsm_2d")
    model = from_released(groups["state"], settings_from(groups["config"]))
    model(torch.from_numpy(values["input"])).square().mean().backward()
    for theirs, ours in (
        ("fc0.weight", "lift.weight"),
        ("fc1.weight", "head.hidden.weight"),
        ("inc.double_conv.0.weight", "network.first.first.convolution.weight"),
        ("down4.maxpool_conv.1.double_conv.3.weight", "network.down.3.second.convolution.weight"),
        ("up1.conv.double_conv.0.weight", "network.up.0.block.first.convolution.weight"),
        ("process1.latent", "network.solve.0.projector.tokens"),
        ("process3.decoder_attn.bias", "network.solve.2.projector.query.bias"),
    ):
        found = dict(model.named_parameters())[ours].grad.norm().item()
        # In float32 ReLU and max-pooling flip signs between equal programs.
        assert found == pytest.approx(float(groups["grad_norm"][theirs]), rel=2e-2)


def test_settings_are_read_as_the_scripts_write_them():
    settings = settings_from(
        {
            "in_dim": np.int64(2),
            "out_dim": "1",
            "d_model": 32,
            "patch_size": np.array("14,4"),
            "padding": "13,3",
        }
    )
    assert settings.grid == (221, 51)
    assert settings.config.widths == (32, 64, 128, 256, 256)
    assert settings.config.coarsest_patches == (1, 1)


def test_smaller_patches_than_a_sixteenth_need_the_grid():
    settings = ReleasedSettings(
        in_dim=1, out_dim=1, d_model=8, patch_size=(3, 3), padding=(11, 11), space=(85, 85)
    )
    assert settings.config.coarsest_patches == (2, 2)


def test_unknown_names_are_refused():
    state = straightforward(CASES[0]).state_dict()
    with pytest.raises(ValueError, match="extra"):
        renamed(state | {"extra": torch.zeros(1)})
