"""Print time, energy balance and accuracy of the forging solver.

    python tests/measurements/solver_cost_plasticity.py --seeds 20
    python tests/measurements/solver_cost_plasticity.py --seeds 0 --flat --refinement

Times are of the processor, so that other work on the machine does not count. The refinement goes up
to 200 x 60 elements and takes minutes.
"""

import argparse
from dataclasses import replace
from time import process_time

import numpy as np

from lsm_core.benchmarks.plasticity import Plasticity
from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_elements.die import Die, draw_die
from lsm_core.solvers.finite_elements.plasticity import Forged, Forging, forge
from lsm_core.solvers.random_fields import random_stream


def print_seeds(benchmark: Plasticity, seeds: range) -> None:
    """Print how each seed fares, and how many finish."""
    times = []
    for seed in seeds:
        start = process_time()
        try:
            sample = benchmark.generate(seed)
        except SolveFailed as error:
            print(f"seed {seed}: {error}", flush=True)
            continue
        times.append(process_time() - start)
        print(
            f"seed {seed}: {times[-1]:.1f} s, {int(sample['n_steps'])} steps, work balance "
            f"{sample['work_balance']:.5f}, hourglass {100 * sample['hourglass_fraction']:.2f} %, "
            f"last force {sample['die_force'][-1]:.0f} N/mm",
            flush=True,
        )
    print(f"{len(times)} of {len(seeds)} seeds finish")
    print(f"seconds a sample: mean {np.mean(times):.1f}, largest {max(times):.1f}")


def print_flat_die() -> None:
    """Print the force of a flat die over yield stress times the section at rest and at present."""
    problem = Forging(die=Die(heights=np.zeros(8), length=50.0))
    forged = forge(problem)
    at_rest = problem.material.yield_stress * problem.length
    depths = problem.stroke * np.arange(1, problem.n_frames + 1) / problem.n_frames
    at_present = at_rest * problem.height / (problem.height - depths)
    print("flat die, force over yield stress times section")
    for frame in (1, 4, 9, 19):
        print(
            f"  depth {depths[frame]:.1f} mm: {forged.die_force[frame] / at_rest:.3f} at rest, "
            f"{forged.die_force[frame] / at_present[frame]:.3f} at present"
        )
    print(f"  work balance {forged.work_balance:.5f}, hourglass {forged.hourglass_fraction:.4f}")


def displacement_at_coarse_nodes(forged: Forged) -> np.ndarray:
    """Return the displacements at the nodes of 10 x 3 elements."""
    n_x, n_y = (size - 1 for size in forged.position.shape[1:3])
    x, y = np.linspace(0, 50, n_x + 1), np.linspace(0, 15, n_y + 1)
    displacement = forged.position - np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    return displacement[:, :: n_x // 10, :: n_y // 3]


def print_refinement(seed: int) -> None:
    """Print the distance of coarser meshes from one of 200 x 60 elements, all frames together."""
    die = draw_die(random_stream("plasticity", seed), n_knots=8, amplitude=3.0, length=50.0)
    sizes = [(20, 6), (50, 15), (100, 30), (200, 60)]
    blocks = []
    for n_elements in sizes:
        start = process_time()
        forged = forge(replace(Forging(die=die), n_elements=n_elements))
        print(f"  {n_elements}: {process_time() - start:.1f} s, {forged.n_steps} steps", flush=True)
        blocks.append(displacement_at_coarse_nodes(forged))
    for n_elements, block in zip(sizes[:-1], blocks, strict=False):
        error = np.linalg.norm(block - blocks[-1]) / np.linalg.norm(blocks[-1])
        print(f"  {n_elements}: displacement {100 * error:.2f} % from {sizes[-1]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--refinement", action="store_true")
    options = parser.parse_args()
    # Compile before anything is timed.
    Plasticity(n_elements_x=10, n_elements_y=3, stroke=0.1).generate(0)
    if options.seeds:
        print_seeds(Plasticity(), range(options.first, options.first + options.seeds))
    if options.flat:
        print_flat_die()
    if options.refinement:
        print("mesh refinement, seed 2")
        print_refinement(2)
