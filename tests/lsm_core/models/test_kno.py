import pytest
import torch

from lsm_core.models.kno import Kno, KnoConfig
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
