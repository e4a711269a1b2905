"""Samples that are changed by hand are those of the problem, with other parameters."""

from typing import get_args

import numpy as np
import pytest

from lsm_core.benchmarks.variations import KNOBS, hidden_changes, inputs_of, varied
from lsm_core.experiments.protocols import data_plan
from lsm_core.names import BenchmarkName

NAMES = get_args(BenchmarkName)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "navier_stokes"])
def test_inputs_without_a_solution_are_those_of_the_solved_sample(name: str) -> None:
    problem = data_plan("smoke", name).benchmark
    knob = next(knob for knob in KNOBS[name] if knob.shows) if name != "burgers" else None
    if knob is not None:
        problem = varied(problem, {knob.name: (knob.lowest + getattr(problem, knob.name)) / 2})
    drawn, solved = inputs_of(problem, 7), problem.generate(7)
    assert set(drawn) == {variable.name for variable in problem.with_role("input")}
    for field, values in drawn.items():
        assert values.dtype == np.float32
        assert np.array_equal(values, solved[field])


@pytest.mark.parametrize("name", NAMES)
def test_every_knob_turns_and_begins_where_training_is(name: str) -> None:
    problem = data_plan("night", name).benchmark
    for knob in KNOBS[name]:
        assert knob.lowest <= getattr(problem, knob.name) <= knob.highest
        for value in (knob.lowest, knob.highest):
            changed = varied(problem, {knob.name: value})
            assert getattr(changed, knob.name) == value
            assert bool(hidden_changes(problem, {knob.name: value})) == (not knob.shows)
        with pytest.raises(ValueError, match=f"{knob.name} must be from"):
            varied(problem, {knob.name: knob.highest + 1})
    own = {knob.name: getattr(problem, knob.name) for knob in KNOBS[name]}
    assert hidden_changes(problem, own) == hidden_changes(problem, {}) == []
    with pytest.raises(ValueError, match="cannot be changed"):
        varied(problem, {"tolerance": 1.0})


def test_a_viscosity_that_no_input_shows_is_told() -> None:
    problem = data_plan("night", "burgers").benchmark
    (told,) = hidden_changes(problem, {"viscosity": 0.01})
    assert told.startswith("it was trained at viscosity 0.1 alone")
