"""Print what a pipe costs and how good it is: `python -m tests.measurements.solver_cost_pipe`.

Fifty seeds take about a minute on one thread, the finer mesh half a minute more. Set
OMP_NUM_THREADS=1 and MKL_NUM_THREADS=1 to measure one thread.
"""

import time

import numpy as np

from lsm_core.benchmarks.pipe import Pipe
from lsm_core.problems.sample import Sample
from lsm_core.solvers.convergence import SolveFailed

N_SEEDS = 50


def main() -> None:
    """Print the number of seeds that converged, seconds, flux deviation and refinement."""
    pipe = Pipe()
    pipe.generate(0)  # compiles, and finds the order of the unknowns
    samples, seconds = generate_all(pipe, N_SEEDS)
    iterations = [int(sample["n_iterations"]) for sample in samples]
    deviations = [flux_deviation(sample) for sample in samples]
    print(f"converged            {len(samples)} of {N_SEEDS} seeds")
    print(f"Newton iterations    {min(iterations)} to {max(iterations)}")
    print(f"processor seconds    mean {np.mean(seconds):.2f}, max {np.max(seconds):.2f}")
    print(f"flux deviation       max {100 * max(deviations):.3f} % over ten cross-sections")
    for n_elements, error in refinement_errors().items():
        print(f"{n_elements:3d} elements a side  {error:.1e} from 128 elements (seed 0)")


def generate_all(pipe: Pipe, n_seeds: int) -> tuple[list[Sample], list[float]]:
    """Return the samples that converged and the time of each attempt."""
    samples, seconds = [], []
    for seed in range(n_seeds):
        start = time.process_time()
        try:
            samples.append(pipe.generate(seed))
        except SolveFailed as failure:
            print(f"seed {seed}: {failure}")
        seconds.append(time.process_time() - start)
    return samples, seconds


def flux_deviation(sample: Sample) -> float:
    """Return the largest relative change of the flux over ten cross-sections."""
    velocity = sample["velocity_x"].astype(np.float64)
    weights = np.ones(velocity.shape[1])  # Simpson's rule, exact for quadratic velocity
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    flux = velocity @ weights
    sections = 2 * np.linspace(0, velocity.shape[0] // 2, 10).astype(int)
    return float(np.max(np.abs(flux[sections] / flux[0] - 1)))


def refinement_errors() -> dict[int, float]:
    """Return the relative L2 distance of the velocity from a mesh of 128 elements a side."""

    def velocity(n_elements: int) -> np.ndarray:
        stride = n_elements // 16
        return Pipe(n_elements=n_elements).generate(0)["velocity_x"][::stride, ::stride]

    reference = velocity(128)
    return {
        n: float(np.linalg.norm(velocity(n) - reference) / np.linalg.norm(reference))
        for n in (16, 32, 64)
    }


if __name__ == "__main__":
    main()
