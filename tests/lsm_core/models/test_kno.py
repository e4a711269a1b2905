import pytest
import torch

from lsm_core.models.kno import Kno, KnoConfig, KoopmanOperator
from lsm_core.problems.shape import ProblemShape


def test_the_number_of_parameters_is_that_of_the_settings():
    model = Kno(KnoConfig(), ProblemShape(space=(64, 64), n_inputs=10, n_outputs=1))
    assert sum(parameter.numel() for parameter in model.parameters()) == 525_729


def test_the_prediction_is_the_evolution_of_the_observables_and_their_local_map():
    torch.manual_seed(0)
    config = KnoConfig(width=3, n_modes=2, n_steps=3)
    model = Kno(config, ProblemShape(space=(7, 6), n_inputs=4, n_outputs=2))
    model.koopman.weight.data.normal_()
    field = torch.randn(2, 7, 6, 4)
    observables = torch.tanh(model.encoder(field))
    evolved = observables
    for _ in range(3):
        evolved = model.koopman(evolved, 1)
    expected = model.decoder(torch.tanh(evolved + model.high_frequencies(observables)))
    torch.testing.assert_close(model(field), expected, rtol=1e-4, atol=1e-5)


def test_the_model_commutes_with_shifts_of_a_periodic_field():
    torch.manual_seed(0)
    config = KnoConfig(width=3, n_modes=3)
    model = Kno(config, ProblemShape(space=(8, 9), n_inputs=2, n_outputs=1))
    model.koopman.weight.data *= 3
    field = torch.randn(1, 8, 9, 2)
    torch.testing.assert_close(
        model(field.roll((3, 2), (1, 2))), model(field).roll((3, 2), (1, 2)), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("space", [(11,), (9, 6), (5, 4, 6)])
def test_every_parameter_has_a_gradient_on_any_grid(space):
    model = Kno(KnoConfig(width=4, n_modes=3), ProblemShape(space=space, n_inputs=2, n_outputs=3))
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="n_steps must be at least 1"):
        KnoConfig(n_steps=0)
    with pytest.raises(ValueError, match="one number for each axis"):
        Kno(KnoConfig(n_modes=(3, 3)), ProblemShape(space=(8,), n_inputs=1, n_outputs=1))


# One axis shorter than the modes, an odd one, and one of even size that all modes fill.
SPACES = [(16,), (6,), (9, 8), (6, 5, 8)]


def operator(n_dims, width=2, n_modes=3):
    torch.manual_seed(0)
    layer = KoopmanOperator(width, (n_modes,) * n_dims).double()
    layer.weight.data = 0.3 * torch.randn(layer.weight.shape, dtype=torch.float64)
    return layer


@pytest.mark.parametrize("space", SPACES)
def test_steps_compose(space):
    layer = operator(len(space))
    field = torch.randn(2, *space, 2, dtype=torch.float64)
    torch.testing.assert_close(layer(layer(field, 2), 3), layer(field, 5))
    assert torch.equal(layer(field, 0), field)
    assert (layer(field, 1) - field).abs().max() > 0.1


@pytest.mark.parametrize("space", SPACES)
def test_the_operator_commutes_with_shifts(space):
    layer = operator(len(space))
    field = torch.randn(2, *space, 2, dtype=torch.float64)
    torch.testing.assert_close(layer(field.roll(2, dims=1), 3), layer(field, 3).roll(2, dims=1))


def wave(k_first, k_second, n_points=12):
    axis = torch.arange(n_points, dtype=torch.float64) * 2 * torch.pi / n_points
    return torch.exp(1j * (k_first * axis[:, None] + k_second * axis))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_mode_is_multiplied_by_a_power_of_its_matrix_whatever_its_sign(sign):
    layer = operator(2, width=1)
    factor = 1 + torch.view_as_complex(layer.weight.detach())[2, 1, 0, 0]
    expected = (factor**4 * wave(2 * sign, 1)).real
    field = wave(2 * sign, 1).real[None, ..., None]
    torch.testing.assert_close(layer(field, 4)[0, ..., 0].detach(), expected)


@pytest.mark.parametrize("wave_numbers", [(3, 1), (-3, 1), (1, 3), (5, 5)])
def test_higher_modes_are_left_as_they_are(wave_numbers):
    field = wave(*wave_numbers).real[None, ..., None]
    torch.testing.assert_close(operator(2, width=1)(field, 3), field)


def test_the_same_operator_acts_on_a_finer_grid():
    layer = operator(2, width=1)
    coarse, fine = (wave(-2, 1, n).real[None, ..., None] for n in (12, 24))
    torch.testing.assert_close(layer(fine, 3)[:, ::2, ::2], layer(coarse, 3))


@pytest.mark.parametrize("space", [(6,), (4, 5)])
def test_gradients_are_those_of_finite_differences(space):
    layer = operator(len(space))
    field = torch.randn(1, *space, 2, dtype=torch.float64, requires_grad=True)

    def run(field, weight):
        return torch.func.functional_call(layer, {"weight": weight}, (field, 3))

    assert torch.autograd.gradcheck(run, (field, layer.weight), fast_mode=True)
