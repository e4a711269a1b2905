"""What every model of the catalogue keeps to, in one, two and three dimensions."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import get_args

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor, nn

from lsm_core.models.catalogue import MODELS, build_model
from lsm_core.names import ModelName
from lsm_core.problems.shape import ProblemShape
from lsm_core.surrogates.predictor import at_shape
from tests.lsm_core.models.small_configs import SMALL

N_INPUTS, N_OUTPUTS = 3, 2
# Odd sizes, and one side a multiple of 16 beside others that are not.
GRIDS = {1: (21,), 2: (16, 13), 3: (16, 7, 9)}
FINER = {1: (37,), 2: (24, 19), 3: (18, 11, 9)}

TIED_TO_THE_GRID: dict[ModelName, str] = {
    "deeponet": r"branch\.dense\.0\.weight",
    "mean_field": "mean",
    "ridge": "coefficients",
    "pod_rbf": "input_mean",
    "pod_nn": "input_mean",
}
"""The models that cannot change their resolution, with the weight that ties them to a grid."""

ON_EVERY_GRID = [
    pytest.param(name, n_dims, id=f"{name}-{n_dims}") for name in MODELS for n_dims in GRIDS
]
every_model = pytest.mark.parametrize("name", MODELS)
# Those that are computed from the samples are linear or constant, and begin as zero.
TRAINED = [case for case in ON_EVERY_GRID if not MODELS[case.values[0]].is_fitted]
every_trained_model_in_every_dimension = pytest.mark.parametrize(("name", "n_dims"), TRAINED)
every_model_in_every_dimension = pytest.mark.parametrize(("name", "n_dims"), ON_EVERY_GRID)


def problem(space: tuple[int, ...]) -> ProblemShape:
    return ProblemShape(space=space, n_inputs=N_INPUTS, n_outputs=N_OUTPUTS)


def small_model(name: ModelName, n_dims: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build_model(SMALL[name], problem(GRIDS[n_dims])).double()


def fields(n_dims: int, batch: int = 2, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, *GRIDS[n_dims], N_INPUTS, generator=generator).double()


def with_statistics(model: nn.Module) -> nn.Module:
    """Return the model in evaluation mode, its weights and statistics away from zero and one.

    A zero that a model starts with (a bias, a gate) would hide what stands behind it.
    """
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(0.1 * torch.randn(buffer.shape, generator=generator))
    return model.eval()


def test_the_table_has_every_name_that_users_see():
    assert tuple(MODELS) == get_args(ModelName)
    assert set(SMALL) == set(MODELS)


@every_model
def test_a_configuration_is_plain_data(name):
    def plain(value: object) -> bool:
        if isinstance(value, dict):
            return all(isinstance(key, str) and plain(entry) for key, entry in value.items())
        if isinstance(value, tuple):
            return all(map(plain, value))
        return value is None or isinstance(value, int | float | str | bool)

    assert plain(asdict(MODELS[name].config()))
    assert type(SMALL[name]) is MODELS[name].config


def sides(n_dims: int) -> Iterator[st.SearchStrategy[int]]:
    """Yield the sizes of each axis, smaller where there are more of them."""
    return (st.integers(8, {1: 60, 2: 24, 3: 12}[n_dims]) for _ in range(n_dims))


@every_model
@settings(max_examples=6, deadline=None)
@example(space=GRIDS[1])
@example(space=GRIDS[2])
@example(space=GRIDS[3])
@given(space=st.one_of(*(st.tuples(*sides(n_dims)) for n_dims in GRIDS)))
def test_the_output_has_the_grid_of_the_input(name, space):
    model = build_model(SMALL[name], problem(space)).eval()
    assert isinstance(model, MODELS[name].network)
    with torch.no_grad():
        predicted = model(torch.randn(1, *space, N_INPUTS))
    assert predicted.shape == (1, *space, N_OUTPUTS)
    assert predicted.isfinite().all()


@every_trained_model_in_every_dimension
def test_the_model_is_not_linear(name, n_dims):
    model = with_statistics(small_model(name, n_dims))
    first, second = 3 * fields(n_dims, seed=3), 3 * fields(n_dims, seed=4)
    with torch.no_grad():
        at_both, at_first, at_second, at_neither = (
            model(field) for field in (first + second, first, second, torch.zeros_like(first))
        )
    change = (at_both - at_neither).norm()
    assert change > 1e-3 * at_both.norm()
    # The second difference of every affine map is zero.
    assert (at_both - at_first - at_second + at_neither).norm() > 1e-3 * change


@every_trained_model_in_every_dimension
def test_every_parameter_has_a_gradient_which_is_its_effect_on_the_output(name, n_dims):
    model, inputs = with_statistics(small_model(name, n_dims)), fields(n_dims)
    predicted = model(inputs)
    weights = torch.randn(predicted.shape, generator=torch.Generator().manual_seed(5)).double()
    (predicted * weights).sum().backward()
    parameters = dict(model.named_parameters())
    # The bias of a key adds the same to every score, which the softmax takes away.
    silent = [
        label
        for label, parameter in parameters.items()
        if not label.endswith("key.bias")
        and (parameter.grad is None or not parameter.grad.abs().max() > 1e-9)
    ]
    assert silent == []
    step, generator = 1e-8, torch.Generator().manual_seed(6)
    with torch.no_grad():
        changes = {k: torch.randn(p.shape, generator=generator) for k, p in parameters.items()}
        slope = sum((p.grad * changes[k]).sum() for k, p in parameters.items())
        for k, parameter in parameters.items():
            parameter.add_(step * changes[k])
        after = model(inputs)
        for k, parameter in parameters.items():
            parameter.sub_(2 * step * changes[k])
        before = model(inputs)
    effect = ((after - before) * weights).sum() / (2 * step)
    torch.testing.assert_close(effect, slope, rtol=1e-4, atol=1e-4)


@every_model_in_every_dimension
def test_samples_do_not_see_each_other_in_evaluation(name, n_dims):
    model, inputs = with_statistics(small_model(name, n_dims)), fields(n_dims, batch=3)
    with torch.no_grad():
        together = model(inputs)
        alone = torch.cat([model(inputs[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-11)


@every_trained_model_in_every_dimension
def test_the_same_seed_gives_the_same_model_and_step(name, n_dims):
    outcomes = []
    for seed in (7, 7, 8):
        model = small_model(name, n_dims, seed).train()
        predicted = model(fields(n_dims))
        predicted.square().sum().backward()
        gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        outcomes.append(torch.cat([predicted.flatten(), *gradients]).detach())
    assert torch.equal(outcomes[0], outcomes[1])
    assert not torch.allclose(outcomes[0], outcomes[2])


@every_model_in_every_dimension
def test_the_state_is_complete(name, n_dims):
    model, inputs = with_statistics(small_model(name, n_dims)), fields(n_dims)
    other = small_model(name, n_dims, seed=9).eval()
    with torch.no_grad():
        expected = model(inputs)
        assert not torch.allclose(other(inputs), expected)
        # Through bytes: no weight may share its memory with another or refuse to be stored.
        other.load_state_dict(load(save(model.state_dict())))
        torch.testing.assert_close(other(inputs), expected, rtol=0, atol=0)


@every_model_in_every_dimension
def test_no_device_is_chosen_inside(name, n_dims):
    with torch.device("meta"):
        model = build_model(SMALL[name], problem(GRIDS[n_dims]))
    tensors = [*model.parameters(), *model.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    # Outside of the context, so that a tensor made on the way has to follow the input.
    predicted = model(fields(n_dims).float().to("meta"))
    assert predicted.device.type == "meta"
    assert predicted.shape == (2, *GRIDS[n_dims], N_OUTPUTS)


@every_model_in_every_dimension
def test_the_resolution_changes_or_the_model_says_why_not(name, n_dims):
    state = small_model(name, n_dims).state_dict()
    finer = problem(FINER[n_dims])
    if name in TIED_TO_THE_GRID:
        sentence = f"{name} is tied to its grid .* its weight {TIED_TO_THE_GRID[name]}"
        with pytest.raises(ValueError, match=sentence):
            at_shape(SMALL[name], state, finer)
        return
    model = at_shape(SMALL[name], state, finer).eval()
    for label, value in model.state_dict().items():
        assert torch.equal(value, state[label].to(value.dtype)), label
    with torch.no_grad():
        assert model(torch.randn(1, *finer.space, N_INPUTS)).isfinite().all()
