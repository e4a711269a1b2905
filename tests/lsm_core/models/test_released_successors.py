"""Transolver, LNO and FLARE are the released models: same weights, same values and gradients."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lsm_core.layers.positions import PositionConfig
from lsm_core.models.flare import FlareConfig
from lsm_core.models.lno import LnoConfig
from lsm_core.models.released_successors import (
    SuccessorConfig,
    from_released_successor,
    renamed_successor,
)
from lsm_core.models.transolver import TransolverConfig
from lsm_core.problems.shape import ProblemShape

REFERENCES = Path(__file__).parents[4] / "shared" / "reference"
references = pytest.mark.skipif(
    not REFERENCES.exists(), reason="the released reference values are not here"
)
GIVEN = PositionConfig(kind="inputs")


@dataclass(frozen=True)
class Case:
    """A released model in our settings, and the inputs of its file as a field of ours."""

    config: SuccessorConfig
    space: tuple[int, ...]
    inputs: tuple[str, ...]
    """Which arrays, side by side, are the channels of the field."""
    exact: str = "output64"
    zero_gradients: tuple[str, ...] = ()

    def field(self, values) -> Tensor:
        channels = np.concatenate([values[f"input/{name}"] for name in self.inputs], axis=-1)
        return torch.from_numpy(channels).unflatten(1, self.space)


SMALL_TRANSOLVER = TransolverConfig(
    width=32, n_layers=3, n_heads=4, n_slices=8, projection="linear", positions=GIVEN
)
SMALL_LNO = LnoConfig(width=32, n_layers=3, n_heads=4, n_latents=8, positions=GIVEN)
CASES = {
    "transolver_points": Case(SMALL_TRANSOLVER, (67,), ("x", "fx")),
    "transolver_grid_2d": Case(
        replace(
            SMALL_TRANSOLVER,
            projection="convolution",
            positions=PositionConfig(kind="distances", n_references=8),
        ),
        (11, 9),
        ("fx",),
        exact="output64_exact_distances",
        zero_gradients=("placeholder",),
    ),
    "transolver_grid_3d": Case(
        TransolverConfig(
            width=16,
            n_layers=2,
            n_heads=2,
            n_slices=8,
            positions=PositionConfig(kind="inputs", n_coordinates=3),
        ),
        (6, 5, 7),
        ("x",),
    ),
    "lno": Case(SMALL_LNO, (67,), ("y",), zero_gradients=("key.bias",)),
    "lno_query": Case(
        replace(SMALL_LNO, separate_scores=True),
        (67,),
        ("y",),
        zero_gradients=("key.bias", "scores.last.bias"),
    ),
    "flare": Case(
        FlareConfig(
            width=32,
            n_layers=2,
            n_heads=4,
            n_latents=8,
            positions=PositionConfig(kind="inputs", n_coordinates=3),
        ),
        (67,),
        ("x",),
    ),
}
every_file = pytest.mark.parametrize("name", CASES)


@cache
def reference(name):
    with np.load(REFERENCES / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def group(name, prefix):
    return {
        key.removeprefix(prefix): value
        for key, value in reference(name).items()
        if key.startswith(prefix)
    }


def released(name):
    case = CASES[name]
    field = case.field(reference(name))
    shape = ProblemShape(space=case.space, n_inputs=field.shape[-1], n_outputs=1)
    return from_released_successor(group(name, "state/"), case.config, shape).eval()


def answer(name, model, dtype):
    values = reference(name)
    model = model.to(dtype)
    if name == "transolver_grid_2d" and dtype == torch.float64:
        # Made anew: a buffer of float32 keeps its rounding.
        field = CASES[name].field(values)
        shape = ProblemShape(space=field.shape[1:-1], n_inputs=1, n_outputs=1)
        torch.set_default_dtype(torch.float64)
        try:
            model.positions = type(model.positions)(CASES[name].config.positions, shape)
        finally:
            torch.set_default_dtype(torch.float32)
    field = CASES[name].field(values).to(dtype)
    if name == "lno_query":
        return model.at(field, torch.from_numpy(values["input/x2"]).to(dtype))
    return model(field).flatten(1, -2)


@references
@every_file
def test_outputs_are_those_of_the_released_model(name):
    with torch.no_grad():
        exact = answer(name, released(name), torch.float64)
        rounded = answer(name, released(name), torch.float32)
    values = reference(name)
    assert (exact - torch.from_numpy(values[CASES[name].exact])).abs().max() < 1e-12
    assert (rounded - torch.from_numpy(values["output"])).abs().max() < 1e-5


@references
def test_with_the_released_rounding_of_distances_the_output_is_the_released_one():
    model, values = released("transolver_grid_2d").double(), reference("transolver_grid_2d")
    code = torch.from_numpy(values["position_code"]).double().view(11, 9, 64)
    assert (model.positions.fixed - code).abs().max() < 1e-6
    model.positions.fixed = code
    with torch.no_grad():
        found = model(CASES["transolver_grid_2d"].field(values).double()).flatten(1, -2)
    assert (found - torch.from_numpy(values["output64"])).abs().max() < 1e-12


@references
@every_file
@pytest.mark.parametrize(("dtype", "key"), [(torch.float64, "64/"), (torch.float32, "/")])
def test_gradient_norms_are_those_of_the_released_model(name, dtype, key):
    model = released(name)
    answer(name, model, dtype).square().mean().backward()
    expected = group(name, f"grad_norm{key}")
    # Named by a state whose arrays are the norms themselves.
    states = {theirs: np.asarray(norm) for theirs, norm in expected.items()}
    norms = renamed_successor(states, model, CASES[name].config)
    gradients = {label: p.grad.norm().item() for label, p in model.named_parameters()}
    assert set(norms) == set(gradients)
    for label, norm in norms.items():
        if f".{label}".endswith(tuple(f".{zero}" for zero in CASES[name].zero_gradients)):
            assert gradients[label] < 1e-6
            assert norm < 1e-6
        else:
            assert gradients[label] == pytest.approx(float(norm), rel=1e-4), label


@references
@every_file
def test_every_parameter_is_one_of_the_released(name):
    given = sum(array.size for array in group(name, "state/").values())
    unread = reference(name)["state/placeholder"].size if name == "transolver_grid_2d" else 0
    assert sum(p.numel() for p in released(name).parameters()) == given - unread


@references
def test_a_state_of_other_settings_is_refused():
    state = group("lno_query", "state/")
    shape = ProblemShape(space=(67,), n_inputs=3, n_outputs=1)
    with pytest.raises(ValueError, match="a released Lno has no attention_decoder"):
        from_released_successor(state, SMALL_LNO, shape)
