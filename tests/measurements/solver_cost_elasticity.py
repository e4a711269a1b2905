"""Print time, convergence and accuracy of the elasticity solver.

    python tests/measurements/solver_cost_elasticity.py

Set OMP_NUM_THREADS=1 to measure one thread.
"""

from time import perf_counter

import numpy as np

from lsm_core.benchmarks.elasticity_grid import ElasticityGrid
from lsm_core.benchmarks.elasticity_points import ElasticityPoints
from lsm_core.benchmarks.unit_cell import UnitCell
from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_elements.hyperelasticity import (
    MooneyRivlin,
    cauchy_stress,
    solve_equilibrium,
    von_mises,
)
from lsm_core.solvers.finite_elements.quadratic_quads import edge_loads, node_points
from lsm_core.solvers.finite_elements.void_mesh import draw_void, mesh_unit_cell
from lsm_core.solvers.random_fields import random_stream

N_SEEDS = 100
RUBBER = MooneyRivlin(first_modulus=1.863e5, second_modulus=9.79e3)


def print_times(benchmark: UnitCell) -> None:
    """Print how many seeds converge and how long a sample takes."""
    benchmark.generate(0)
    times, iterations, failures = [], [], []
    for seed in range(N_SEEDS):
        start = perf_counter()
        try:
            sample = benchmark.generate(seed)
        except SolveFailed as error:
            failures.append((seed, str(error)))
            continue
        times.append(perf_counter() - start)
        iterations.append(int(sample["n_iterations"]))
    print(f"{benchmark.name}: {N_SEEDS - len(failures)} of {N_SEEDS} seeds converge {failures}")
    print(f"  Newton iterations {min(iterations)} to {max(iterations)}")
    print(f"  seconds a sample: mean {np.mean(times):.3f}, largest {max(times):.3f}")


def values_at_coarse_vertices(seed: int, refinement: int) -> tuple[np.ndarray, np.ndarray]:
    """Return displacement and stress at the vertices of the 36 x 3 mesh."""
    void = draw_void(
        random_stream("elasticity", seed), n_modes=10, smallest_radius=0.2, largest_radius=0.4
    )
    mesh = mesh_unit_cell(void, n_around=36 * refinement, n_outward=3 * refinement)
    clamped = np.zeros(mesh.nodes.shape, dtype=bool)
    clamped[mesh.bottom] = True
    loads = edge_loads(mesh, mesh.top_edges, np.array([0.0, 100.0]))
    displacement = solve_equilibrium(mesh, RUBBER, loads=loads, fixed=clamped).displacement
    stress = von_mises(cauchy_stress(mesh, RUBBER, displacement, node_points()))
    total, count = np.zeros(len(mesh.nodes)), np.zeros(len(mesh.nodes))
    np.add.at(total, mesh.elements, stress)
    np.add.at(count, mesh.elements, 1)
    shape, stride = (mesh.n_rings, mesh.n_rays), 2 * refinement
    at_vertices = (total / count).reshape(shape)[::stride, ::stride]
    at_vertices[-1, [0, 9]] = 0.0  # the clamped corners are singular
    return displacement.reshape(*shape, 2)[::stride, ::stride], at_vertices


def print_refinement(seed: int) -> None:
    """Print the distance of three meshes from one of 288 x 24 elements."""
    *coarser, finest = (values_at_coarse_vertices(seed, refinement) for refinement in (1, 2, 4, 8))
    for name, part in (("displacement", 0), ("stress at vertices", 1)):
        errors = [
            np.linalg.norm(solution[part] - finest[part]) / np.linalg.norm(finest[part])
            for solution in coarser
        ]
        print(f"  seed {seed} {name}: " + ", ".join(f"{100 * error:.2f} %" for error in errors))


def print_stress_range() -> None:
    """Print the extremes and the mean of the stress over the seeds."""
    stresses = np.stack([ElasticityPoints().generate(seed)["stress"] for seed in range(N_SEEDS)])
    print(
        f"stress over {N_SEEDS} seeds: smallest {stresses.min():.1f}, mean {stresses.mean():.1f}, "
        f"largest {stresses.max():.0f} Pa"
    )


if __name__ == "__main__":
    print_times(ElasticityPoints())
    print_times(ElasticityGrid())
    print_stress_range()
    print("relative L2 distance of 36 x 3, 72 x 6, 144 x 12 from 288 x 24 elements")
    for void_seed in range(4):
        print_refinement(void_seed)
