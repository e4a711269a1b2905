import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.models.fno import Fno, FnoConfig
from lsm_core.problems.shape import ProblemShape

GRIDS = st.one_of(
    st.tuples(st.integers(3, 40)),
    st.tuples(st.integers(3, 20), st.integers(3, 20)),
    st.tuples(st.integers(3, 9), st.integers(3, 9), st.integers(3, 9)),
)


def test_there_are_as_many_parameters_as_in_the_paper():
    model = Fno(FnoConfig(), ProblemShape(space=(64, 64), n_inputs=1, n_outputs=1))
    assert sum(parameter.numel() for parameter in model.parameters()) == 2_368_001


@settings(max_examples=20, deadline=None)
@given(GRIDS, st.integers(0, 3))
def test_the_output_has_the_grid_of_the_input_and_every_parameter_a_gradient(space, padding):
    shape = ProblemShape(space=space, n_inputs=2, n_outputs=3)
    model = Fno(FnoConfig(width=4, n_modes=3, padding=padding), shape)
    predicted = model(torch.randn(2, *space, 2))
    assert predicted.shape == (2, *space, 3)
    predicted.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_the_same_weights_predict_the_same_function_on_a_finer_grid():
    torch.manual_seed(0)
    config = FnoConfig(width=4, n_modes=3, n_layers=1)
    model = Fno(config, ProblemShape(space=(32,), n_inputs=1, n_outputs=1))
    finer = Fno(config, ProblemShape(space=(64,), n_inputs=1, n_outputs=1))
    finer.load_state_dict(model.state_dict())
    # Coordinates from 0 to 1 inclusive do not halve with the spacing of a periodic grid.
    model.with_coordinates.coordinates.zero_()
    finer.with_coordinates.coordinates.zero_()
    sine = torch.sin(torch.arange(64) * 2 * torch.pi / 64).reshape(1, 64, 1)
    torch.testing.assert_close(finer(sine)[:, ::2], model(sine[:, ::2]), atol=1e-5, rtol=1e-4)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="n_modes must be at least 1"):
        FnoConfig(n_modes=(3, 0))
    with pytest.raises(ValueError, match="padding"):
        FnoConfig(padding=-1)
    with pytest.raises(ValueError, match="one number for each axis"):
        Fno(FnoConfig(n_modes=(3, 3)), ProblemShape(space=(8,), n_inputs=1, n_outputs=1))
