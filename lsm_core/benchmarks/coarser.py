"""The problem's own solver at coarser settings, on the grid of the problem.

What a network has to beat is not a solver at its finest, but one that is given as much time. Where
the input of a sample determines the problem, the solver starts from that and knows no more than a
network does: Burgers from the initial field, Darcy from the medium (between two stored cells it is
that of the nearest), Navier-Stokes from the last of the known frames. Where the input shows a
geometry, which it does exactly at its nodes (pipe, airfoil, points around a void, the die), the
solver gets the geometry from the seed that drew it, instead of finding it in the nodes again. The
mask of elasticity on a grid shows the void only to the distance of two nodes: there the solver,
from the seed, knows more.

These settings do not lie in the files of the problems: data is named by their sources.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from math import gcd
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.interpolate import make_interp_spline

from lsm_core.benchmarks.airfoil import Airfoil
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.burgers import N_SAMPLES_TOGETHER, Burgers
from lsm_core.benchmarks.darcy import Darcy
from lsm_core.benchmarks.elasticity_grid import ElasticityGrid, interpolate_stress
from lsm_core.benchmarks.elasticity_points import ElasticityPoints
from lsm_core.benchmarks.navier_stokes import NavierStokes, force_modes
from lsm_core.benchmarks.pipe import Pipe
from lsm_core.benchmarks.plasticity import Plasticity
from lsm_core.benchmarks.unit_cell import UnitCell
from lsm_core.problems.sample import Sample
from lsm_core.solvers.finite_elements.die import draw_die
from lsm_core.solvers.finite_elements.plasticity import forge
from lsm_core.solvers.finite_volumes.darcy import solve_darcy
from lsm_core.solvers.random_fields import random_stream
from lsm_core.solvers.spectral.burgers import solve_burgers
from lsm_core.solvers.spectral.navier_stokes import (
    VorticityEquation,
    resolved_modes,
    vorticity_at_unit_times,
)

Arrays = Mapping[str, np.ndarray[Any, np.dtype[Any]]]
"""Inputs of some samples by name, each with the samples along its first axis."""
SIDES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
LOOSE = 1e-3
"""Where iterations end at coarser settings: below what a coarse mesh leaves."""


@dataclass(frozen=True)
class Coarsening:
    """How a problem is solved at coarser settings."""

    settings: Callable[[Any], Iterator[Benchmark]]
    """Yields coarser forms of a problem, the coarsest first."""
    solve: Callable[[Any, Any, Arrays, Sequence[int]], Iterator[Sample]]
    """From the problem, a coarser form, inputs and seeds to targets on the problem's grid."""


def has_solver(problem: Benchmark) -> bool:
    """Return whether a problem can be solved here at coarser settings."""
    return type(problem) in COARSENINGS


def settings_of(problem: Benchmark) -> list[Benchmark]:
    """Return the settings that a problem can be solved at, the coarsest first, its own last."""
    found = COARSENINGS[type(problem)].settings(problem)
    return [*(each for each in found if each != problem), problem]


def solved_at(
    problem: Benchmark, coarse: Benchmark, inputs: Arrays, seeds: Sequence[int]
) -> list[Sample]:
    """Return the targets of some samples on the problem's grid, solved at coarser settings.

    SolveFailed if a sample has no solution there.
    """
    return list(COARSENINGS[type(problem)].solve(problem, coarse, inputs, seeds))


def difference(problem: Benchmark, coarse: Benchmark) -> str:
    """Return in what a coarser form differs, like `resolution 32, tolerance 0.001`."""
    own, other = problem.parameters(), coarse.parameters()
    changed = (f"{name} {value:g}" for name, value in other.items() if value != own[name])
    return ", ".join(changed) or "its own settings"


def between(
    values: Float[np.ndarray, "..."],
    given: Sequence[Float[np.ndarray, " _"]],
    asked: Sequence[Float[np.ndarray, " _"]],
    degree: int = 3,
) -> Float[np.ndarray, "..."]:
    """Return values on another grid, by a spline along each of the first axes in turn."""
    for axis, (old, new) in enumerate(zip(given, asked, strict=True)):
        fitting = min(degree, len(old) - 1)
        values = make_interp_spline(old, values, k=fitting, axis=axis)(new)
    return values


def _parts(*sizes: int) -> Iterator[tuple[int, ...]]:
    """Yield sizes in their proportion, the smallest first, as far as they are whole."""
    shared = gcd(*sizes)
    for part in range(1, shared + 1):
        yield tuple(int(size * Fraction(part, shared)) for size in sizes)


def _burgers_settings(problem: Burgers) -> Iterator[Burgers]:
    for n_points in SIDES:
        if 12 <= n_points <= problem.solver_points:
            n_steps = min(problem.solver_steps, max(2, n_points // 8))
            yield replace(problem, solver_points=n_points, solver_steps=n_steps)


def _burgers(
    problem: Burgers, coarse: Burgers, inputs: Arrays, seeds: Sequence[int]
) -> Iterator[Sample]:
    n_modes = (coarse.solver_points - 1) // 3 + 1
    # A grid that shows all modes of the solution, of which the problem's is every n-th point.
    finer = problem.resolution * -(-2 * n_modes // problem.resolution)
    for first in range(0, len(seeds), N_SAMPLES_TOGETHER):
        initial = inputs["initial"][first : first + N_SAMPLES_TOGETHER]
        known = np.fft.rfft(initial.astype(np.float64), norm="forward")
        if initial.shape[-1] % 2 == 0:
            known = known[:, :-1]  # of the highest frequency the points show one phase only
        modes = np.pad(known, ((0, 0), (0, max(0, n_modes - known.shape[1]))))
        final = solve_burgers(
            modes,
            viscosity=problem.viscosity,
            period=problem.period,
            final_time=problem.final_time,
            n_points=coarse.solver_points,
            n_steps=coarse.solver_steps,
        )
        values = np.fft.irfft(final, finer, norm="forward")[:, :: finer // problem.resolution]
        yield from ({"final": each} for each in values)


def _darcy_settings(problem: Darcy) -> Iterator[Darcy]:
    stored = len(problem.coordinates["x"])
    for side in sorted({*SIDES, stored, problem.resolution}):
        if side <= problem.resolution:
            yield replace(problem, resolution=side, stride=1, tolerance=LOOSE)


def _darcy(problem: Darcy, coarse: Darcy, inputs: Arrays, seeds: Sequence[int]) -> Iterator[Sample]:
    stored = problem.coordinates["x"]
    centres = (np.arange(coarse.resolution) + 0.5) / coarse.resolution
    nearest = np.abs(stored[:, None] - centres).argmin(0)
    edges = np.concatenate([[0.0], centres, [1.0]])
    for medium in inputs["coefficient"]:
        coefficient = medium[np.ix_(nearest, nearest)].astype(np.float64)
        solution = solve_darcy(coefficient, np.ones_like(coefficient), tolerance=coarse.tolerance)
        # The pressure is zero on the boundary, half a cell away from the outermost centres.
        pressure = np.pad(solution.pressure, 1)
        yield {"pressure": between(pressure, (edges, edges), (stored, stored))}


def _navier_stokes_settings(problem: NavierStokes) -> Iterator[NavierStokes]:
    for side in SIDES:
        shows = side < problem.resolution or side % problem.resolution == 0
        if 8 <= side < problem.solver_resolution and shows:
            yield replace(problem, resolution=side, solver_resolution=side)


def _navier_stokes(
    problem: NavierStokes, coarse: NavierStokes, inputs: Arrays, seeds: Sequence[int]
) -> Iterator[Sample]:
    def equation(n_points: int) -> VorticityEquation:
        return VorticityEquation(
            n_points=n_points,
            viscosity=problem.viscosity,
            force=force_modes(problem.force_amplitude),
            dtype=np.float32 if problem.precision == "float32" else np.float64,
        )

    side, shown = coarse.solver_resolution, problem.resolution
    solver, finer = equation(side), equation(shown)

    def on_grid(frame: Float[np.ndarray, "x y"]) -> Float[np.ndarray, "shown_x shown_y"]:
        if side >= shown:
            return frame[:: side // shown, :: side // shown]
        modes = resolved_modes(np.fft.rfft2(frame, norm="forward"), shown)
        return finer.on_grid(modes[None].astype(finer.complex_type))[0]

    for history in inputs["vorticity_history"]:
        modes = np.fft.rfft2(history[..., -1].astype(np.float64), norm="forward")
        frames = vorticity_at_unit_times(solver, modes, coarse.courant)
        wanted = islice(frames, problem.n_future)
        yield {"vorticity_future": np.stack([on_grid(frame) for frame in wanted], axis=-1)}


def _unit_cell_settings(problem: UnitCell) -> Iterator[UnitCell]:
    for n_around, n_outward in ((8, 1), (12, 1), (16, 1), (20, 2), (24, 2), (28, 3)):
        if n_around <= problem.n_around and n_outward <= problem.n_outward:
            yield replace(problem, n_around=n_around, n_outward=n_outward)


def _elasticity_points(
    problem: ElasticityPoints, coarse: ElasticityPoints, inputs: Arrays, seeds: Sequence[int]
) -> Iterator[Sample]:
    for points, seed in zip(inputs["points"], seeds, strict=True):
        yield {"stress": interpolate_stress(coarse.solve(seed), points.astype(np.float64))}


def _elasticity_grid(
    problem: ElasticityGrid, coarse: ElasticityGrid, inputs: Arrays, seeds: Sequence[int]
) -> Iterator[Sample]:
    along = problem.coordinates["x"]
    nodes = np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1)
    for mask, seed in zip(inputs["mask"], seeds, strict=True):
        yield {"stress": mask * interpolate_stress(coarse.solve(seed), nodes)}


def _plasticity_settings(problem: Plasticity) -> Iterator[Plasticity]:
    for n_x, n_y in _parts(problem.n_elements_x, problem.n_elements_y):
        yield replace(problem, n_elements_x=n_x, n_elements_y=n_y)


def _plasticity(
    problem: Plasticity, coarse: Plasticity, inputs: Arrays, seeds: Sequence[int]
) -> Iterator[Sample]:
    given, asked = (
        [np.linspace(0.0, 1.0, n + 1) for n in (each.n_elements_x, each.n_elements_y)]
        for each in (coarse, problem)
    )
    axes = (problem.coordinates[axis] for axis in ("x", "y"))
    undeformed = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)[:, :, None]
    for seed in seeds:
        die = draw_die(
            random_stream("plasticity", seed),
            n_knots=problem.n_knots,
            amplitude=problem.amplitude,
            length=problem.length,
        )
        moved = between(coarse.state(forge(coarse.forging(die)))[..., 2:], given, asked)
        yield {"state": np.concatenate([undeformed + moved, moved], axis=-1)}


def _airfoil_settings(problem: Airfoil) -> Iterator[Airfoil]:
    for n_wake, n_surface, n_normal in _parts(problem.n_wake, problem.n_surface, problem.n_normal):
        with suppress(ValueError):  # a mesh has eight cells at least
            yield replace(
                problem, n_wake=n_wake, n_surface=n_surface, n_normal=n_normal, tolerance=LOOSE
            )


def _airfoil(
    problem: Airfoil, coarse: Airfoil, inputs: Arrays, seeds: Sequence[int]
) -> Iterator[Sample]:
    """Yield the flows; each starts from that around the unbent airfoil, solved once for all."""
    given, asked = (
        [np.linspace(0.0, 1.0, n) for n in each.mesh_size.n_nodes] for each in (coarse, problem)
    )
    for seed in seeds:
        # Linear: a spline swings about a shock.
        yield {"mach": between(coarse.generate(seed)["mach"], given, asked, degree=1)}


def _pipe_settings(problem: Pipe) -> Iterator[Pipe]:
    for n_elements in sorted({2, *SIDES, problem.n_elements}):
        if n_elements <= problem.n_elements:
            yield replace(problem, n_elements=n_elements, tolerance=LOOSE)


def _pipe(problem: Pipe, coarse: Pipe, inputs: Arrays, seeds: Sequence[int]) -> Iterator[Sample]:
    given, asked = ([np.linspace(0.0, 1.0, each.n_nodes)] * 2 for each in (coarse, problem))
    for seed in seeds:
        yield {"velocity_x": between(coarse.generate(seed)["velocity_x"], given, asked)}


COARSENINGS: dict[type[Benchmark], Coarsening] = {
    Burgers: Coarsening(_burgers_settings, _burgers),
    Darcy: Coarsening(_darcy_settings, _darcy),
    NavierStokes: Coarsening(_navier_stokes_settings, _navier_stokes),
    ElasticityPoints: Coarsening(_unit_cell_settings, _elasticity_points),
    ElasticityGrid: Coarsening(_unit_cell_settings, _elasticity_grid),
    Plasticity: Coarsening(_plasticity_settings, _plasticity),
    Airfoil: Coarsening(_airfoil_settings, _airfoil),
    Pipe: Coarsening(_pipe_settings, _pipe),
}
