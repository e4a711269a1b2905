"""The solvers at coarser settings: exact at their own, and the better the finer."""

from dataclasses import replace

import numpy as np
import pytest

from lsm_core.benchmarks.airfoil import Airfoil
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.burgers import Burgers
from lsm_core.benchmarks.catalogue import BENCHMARKS
from lsm_core.benchmarks.coarser import (
    COARSENINGS,
    between,
    difference,
    has_solver,
    settings_of,
    solved_at,
)
from lsm_core.benchmarks.darcy import Darcy
from lsm_core.benchmarks.elasticity_grid import ElasticityGrid
from lsm_core.benchmarks.elasticity_points import ElasticityPoints
from lsm_core.benchmarks.navier_stokes import NavierStokes
from lsm_core.benchmarks.pipe import Pipe
from lsm_core.benchmarks.plasticity import Plasticity

SEEDS = (7, 8)
# Each shows all that its solver starts from: the input of Burgers has more points than the solver,
# every cell of Darcy is stored, and so is every point of Navier-Stokes.
PROBLEMS: dict[str, tuple[Benchmark, float]] = {
    "burgers": (Burgers(resolution=1024, solver_points=128, solver_steps=64), 1e-5),
    "darcy": (Darcy(resolution=32, field_modes=32), 1e-6),
    "navier_stokes": (NavierStokes(resolution=32, solver_resolution=32, viscosity=1e-3), 1e-5),
    "elasticity_p": (ElasticityPoints(), 2e-5),
    "elasticity_g": (ElasticityGrid(), 1e-6),
    "plasticity": (Plasticity(n_elements_x=30, n_elements_y=9, n_frames=4), 1e-6),
    "airfoil": (Airfoil(n_wake=16, n_surface=32, n_normal=16), 1e-6),
    "pipe": (Pipe(n_elements=12), 1e-6),
}
"""Small problems, and how far from their own solution rounding brings them."""
FROM_THE_INPUT = ("burgers", "darcy", "navier_stokes")


def samples_of(problem):
    samples = problem.generate_many(SEEDS)
    names = [each.name for each in problem.with_role("input")]
    return samples, {name: np.stack([sample[name] for sample in samples]) for name in names}


def error(problem, settings):
    samples, inputs = samples_of(problem)
    (target,) = problem.with_role("target")
    found = solved_at(problem, settings, inputs, SEEDS)
    assert all(each[target.name].shape == target.shape for each in found)
    return np.mean(
        [
            np.linalg.norm(each[target.name] - sample[target.name])
            / np.linalg.norm(sample[target.name])
            for each, sample in zip(found, samples, strict=True)
        ]
    )


def test_every_problem_has_one():
    assert set(PROBLEMS) == set(BENCHMARKS)
    assert {type(problem) for problem, _ in PROBLEMS.values()} == set(COARSENINGS)
    assert all(has_solver(problem) for problem, _ in PROBLEMS.values())


@pytest.mark.parametrize("name", PROBLEMS)
def test_at_its_own_settings_it_is_the_solution(name):
    problem, rounding = PROBLEMS[name]
    assert settings_of(problem)[-1] == problem
    assert error(problem, problem) < rounding


@pytest.mark.parametrize("name", PROBLEMS)
def test_finer_settings_are_closer(name):
    problem, _ = PROBLEMS[name]
    coarser = settings_of(problem)[:-1]
    chosen = (coarser[0], coarser[len(coarser) // 2], coarser[-1])
    coarsest, middle, finest = (error(problem, settings) for settings in chosen)
    assert finest <= middle
    assert finest < coarsest / 2


@pytest.mark.parametrize("name", FROM_THE_INPUT)
def test_where_the_input_tells_all_the_seed_is_not_asked(name):
    problem, _ = PROBLEMS[name]
    _, inputs = samples_of(problem)
    settings = settings_of(problem)[1]
    (target,) = problem.with_role("target")
    first, second = (solved_at(problem, settings, inputs, seeds) for seeds in (SEEDS, (90, 91)))
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one[target.name], other[target.name])


def test_a_medium_is_taken_from_the_nearest_stored_cell():
    # Stored cells of a medium with one phase tell everything, whichever are stored.
    problem = Darcy(resolution=60, stride=5, high_coefficient=3.0, low_coefficient=3.0)
    assert error(problem, replace(problem, stride=1)) < 1e-6


def test_what_differs_is_said():
    problem = Pipe(n_elements=12)
    assert difference(problem, settings_of(problem)[0]) == "n_elements 2, tolerance 0.001"
    assert difference(problem, problem) == "its own settings"


def test_a_spline_meets_its_values_and_is_exact_on_cubes():
    given, asked = np.linspace(0, 1, 6), np.linspace(0, 1, 11)
    values = given[:, None] ** 3 * (1 + given) ** 2
    found = between(values, (given, given), (asked, asked))
    assert found == pytest.approx(asked[:, None] ** 3 * (1 + asked) ** 2, abs=1e-12)
    assert found[::2, ::2] == pytest.approx(values, abs=1e-12)
