"""What may be changed about a problem by hand, and its inputs without the solution.

A surrogate answers at once; a solver takes seconds. So that a sample can be changed and looked at
while it changes, its inputs are drawn here by the problem's own functions and not solved for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isclose
from typing import Any

import numpy as np

from lsm_core.benchmarks.airfoil import Airfoil
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.burgers import FINEST_RESOLUTION, Burgers, initial_modes
from lsm_core.benchmarks.darcy import Darcy
from lsm_core.benchmarks.elasticity_grid import ElasticityGrid
from lsm_core.benchmarks.elasticity_points import ElasticityPoints
from lsm_core.benchmarks.pipe import Pipe
from lsm_core.benchmarks.plasticity import Plasticity
from lsm_core.benchmarks.unit_cell import UnitCell
from lsm_core.problems.sample import Sample
from lsm_core.solvers.finite_elements.die import draw_die
from lsm_core.solvers.finite_elements.quadratic_quads import gauss_points, physical_positions
from lsm_core.solvers.finite_elements.void_mesh import Void, draw_void, mesh_unit_cell
from lsm_core.solvers.random_fields import random_stream

NEW_SEEDS = 5_000_000
"""From here on no training, validation, test or calibration has a seed."""


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A parameter of a problem that may be changed, within what its solver can do."""

    name: str
    label: str
    lowest: float
    highest: float
    step: float
    shows: bool = True
    """Whether the input of a model shows it; if not, no model can know of a change."""


KNOBS: dict[str, tuple[Knob, ...]] = {
    "burgers": (
        Knob(name="viscosity", label="viscosity", lowest=0.01, highest=0.2, step=0.01, shows=False),
    ),
    "darcy": (
        Knob(
            name="high_coefficient",
            label="permeability of the open phase",
            lowest=3.0,
            highest=36.0,
            step=0.5,
        ),
    ),
    "navier_stokes": (
        Knob(
            name="force_amplitude",
            label="strength of the force",
            lowest=0.0,
            highest=0.3,
            step=0.01,
            shows=False,
        ),
    ),
    "elasticity_p": (
        Knob(name="largest_radius", label="largest radius", lowest=0.25, highest=0.45, step=0.01),
        Knob(
            name="traction", label="pull in Pa", lowest=10.0, highest=300.0, step=5.0, shows=False
        ),
    ),
    "elasticity_g": (
        Knob(name="largest_radius", label="largest radius", lowest=0.25, highest=0.45, step=0.01),
        Knob(
            name="traction", label="pull in Pa", lowest=10.0, highest=300.0, step=5.0, shows=False
        ),
    ),
    "plasticity": (
        Knob(name="amplitude", label="depth of the die in mm", lowest=0.5, highest=6.0, step=0.25),
    ),
    "airfoil": (
        Knob(
            name="displacement_range", label="bend in chords", lowest=0.0, highest=0.1, step=0.005
        ),
        Knob(name="mach", label="Mach number", lowest=0.7, highest=0.85, step=0.01, shows=False),
    ),
    "pipe": (
        Knob(name="centreline_range", label="bend", lowest=0.0, highest=2.0, step=0.05),
        Knob(
            name="viscosity",
            label="viscosity",
            lowest=0.0025,
            highest=0.02,
            step=0.0005,
            shows=False,
        ),
    ),
}


def varied(problem: Benchmark, changes: dict[str, float]) -> Benchmark:
    """Return the problem with some parameters changed; ValueError for what may not be."""
    known = {knob.name: knob for knob in KNOBS.get(problem.name, ())}
    for name, value in changes.items():
        if name not in known:
            may = ", ".join(known) or "nothing"
            raise ValueError(f"{name!r} of {problem.name} cannot be changed, but {may} can")
        knob = known[name]
        if not knob.lowest <= value <= knob.highest:
            raise ValueError(
                f"{name} must be from {knob.lowest:g} to {knob.highest:g}, got {value:g}"
            )
    return replace(problem, **changes)


def hidden_changes(trained: Benchmark, said: Mapping[str, float]) -> list[str]:
    """Return, in a sentence each, which parameters differ that the input of a model hides."""
    return [
        f"it was trained at {knob.label} {getattr(trained, knob.name):g} alone, and its input does "
        f"not show that this is {said[knob.name]:g}"
        for knob in KNOBS.get(trained.name, ())
        if not knob.shows
        and not isclose(said.get(knob.name, known := getattr(trained, knob.name)), known)
    ]


def inputs_of(problem: Benchmark, seed: int) -> Sample:
    """Return the inputs of a seed, equal to those of the solved sample."""
    draw = DRAWN.get(type(problem))
    if draw is not None:
        return draw(problem, seed)
    solved = problem.generate(seed)  # here the inputs are themselves solutions
    return {variable.name: solved[variable.name] for variable in problem.with_role("input")}


def _burgers(problem: Burgers, seed: int) -> Sample:
    values = np.fft.irfft(initial_modes(seed)[None], FINEST_RESOLUTION, norm="forward")[0]
    return _single(initial=values[:: FINEST_RESOLUTION // problem.resolution])


def _darcy(problem: Darcy, seed: int) -> Sample:
    return _single(coefficient=problem.coefficient(seed)[:: problem.stride, :: problem.stride])


def _pipe(problem: Pipe, seed: int) -> Sample:
    nodes = problem.flow_problem(problem.draw_centreline(seed)).nodes
    return _single(mesh_x=nodes[..., 0], mesh_y=nodes[..., 1])


def _airfoil(problem: Airfoil, seed: int) -> Sample:
    nodes = problem.mesh(problem.draw_displacements(seed)).nodes
    return _single(mesh_x=nodes[..., 0], mesh_y=nodes[..., 1])


def _plasticity(problem: Plasticity, seed: int) -> Sample:
    die = draw_die(
        random_stream("plasticity", seed),
        n_knots=problem.n_knots,
        amplitude=problem.amplitude,
        length=problem.length,
    )
    return _single(die=die.height(np.linspace(0.0, problem.length, problem.n_elements_x + 1)))


def _void(problem: UnitCell, seed: int) -> Void:
    return draw_void(
        random_stream("elasticity", seed),
        n_modes=problem.n_modes,
        smallest_radius=problem.smallest_radius,
        largest_radius=problem.largest_radius,
    )


def _elasticity_points(problem: ElasticityPoints, seed: int) -> Sample:
    void = _void(problem, seed)
    mesh = mesh_unit_cell(void, n_around=problem.n_around, n_outward=problem.n_outward)
    radii = void.radius(problem.coordinates["angle"])
    radii[-1] = radii[0]
    return _single(points=physical_positions(mesh, gauss_points()).reshape(-1, 2), radii=radii)


def _elasticity_grid(problem: ElasticityGrid, seed: int) -> Sample:
    along = problem.coordinates["x"]
    nodes = np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1)
    return _single(mask=~_void(problem, seed).covers(nodes))


def _single(**arrays: np.ndarray[Any, np.dtype[Any]]) -> Sample:
    return {name: values.astype(np.float32) for name, values in arrays.items()}


DRAWN: dict[type[Benchmark], Callable[[Any, int], Sample]] = {
    Burgers: _burgers,
    Darcy: _darcy,
    Pipe: _pipe,
    Airfoil: _airfoil,
    Plasticity: _plasticity,
    ElasticityPoints: _elasticity_points,
    ElasticityGrid: _elasticity_grid,
}
"""How inputs are drawn, where that takes no solver."""
