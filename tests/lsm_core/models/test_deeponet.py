import pytest
import torch

from lsm_core.models.deeponet import Deeponet, DeeponetConfig
from lsm_core.problems.shape import ProblemShape


def problem(*space, n_inputs=1, n_outputs=1):
    return ProblemShape(space=space, n_inputs=n_inputs, n_outputs=n_outputs)


def test_the_number_of_parameters_is_that_of_the_settings():
    model = Deeponet(DeeponetConfig(), problem(256, 256))
    assert sum(parameter.numel() for parameter in model.parameters()) == 4_467_457


def test_each_output_is_a_sum_of_the_functions_of_its_own_trunk():
    torch.manual_seed(0)
    model = Deeponet(DeeponetConfig(width=6), problem(9, 7, n_inputs=2, n_outputs=3))
    model.constant.data = torch.tensor([1.0, 2.0, 3.0])
    field = torch.randn(2, 9, 7, 2)
    coefficients = model.branch(field)
    predicted = model(field)
    for channel, trunk in enumerate(model.trunks):
        functions = trunk(torch.tensor([3 / 8, 5 / 6]))
        expected = coefficients @ functions + channel + 1
        torch.testing.assert_close(predicted[:, 3, 5, channel], expected)


def test_the_branch_reads_the_field_at_sensors_from_end_to_end():
    model = Deeponet(DeeponetConfig(width=4, n_sensors=5), problem(9, 4))
    field = torch.arange(36.0).reshape(1, 9, 4, 1)
    torch.testing.assert_close(model.at_sensors(field), field[:, ::2])
    changed = field.clone()
    changed[:, 1] += 5.0  # between two sensors
    assert torch.equal(model(changed), model(field))


def test_grids_that_hold_all_sensors_share_their_weights_and_values():
    torch.manual_seed(0)
    config = DeeponetConfig(width=8, n_sensors=5)
    coarse, fine = Deeponet(config, problem(9)), Deeponet(config, problem(17))
    fine.load_state_dict(coarse.state_dict())
    field = torch.randn(2, 17, 1)
    torch.testing.assert_close(fine(field)[:, ::2], coarse(field[:, ::2]))


def test_another_number_of_sensors_is_refused():
    model = Deeponet(DeeponetConfig(width=4), problem(21))
    other = Deeponet(DeeponetConfig(width=4), problem(42))
    with pytest.raises(RuntimeError, match=r"branch\.dense\.0\.weight"):
        other.load_state_dict(model.state_dict())


@pytest.mark.parametrize("space", [(11,), (9, 6), (5, 4, 6)])
def test_every_parameter_has_a_gradient_on_any_grid(space):
    torch.manual_seed(0)
    model = Deeponet(DeeponetConfig(width=8), problem(*space, n_inputs=2, n_outputs=3))
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="n_sensors must be at least 2"):
        DeeponetConfig(n_sensors=1)
