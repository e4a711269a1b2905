"""Print how far a Navier-Stokes solve on 128 points a side is from one on 256, and what they cost.

    python tests/measurements/solver_cost_navier_stokes.py         # ten seeds
    python tests/measurements/solver_cost_navier_stokes.py 3       # fewer

Both are stored on the same 64 points a side. Differences are relative in L2, at times 1, 10 and 20;
seconds are those of the processor, for one sample on one thread.
"""

import sys
import time

import numpy as np

from lsm_core.benchmarks.navier_stokes import NavierStokes


def main() -> None:
    n_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    fine, coarse = NavierStokes(), NavierStokes(solver_resolution=128)
    print(f"{'seed':>6} {'t = 1':>9} {'t = 10':>9} {'t = 20':>9} {'256 [s]':>9} {'128 [s]':>9}")
    rows = []
    for seed in range(n_seeds):
        reference, fine_seconds = timed_vorticity(fine, seed)
        found, coarse_seconds = timed_vorticity(coarse, seed)
        distance = np.linalg.norm(found - reference, axis=(0, 1))
        differences = (distance / np.linalg.norm(reference, axis=(0, 1)))[[0, 9, 19]]
        rows.append([*differences, fine_seconds, coarse_seconds])
        print_row(str(seed), rows[-1])
    print_row("median", np.median(rows, axis=0))


def timed_vorticity(benchmark: NavierStokes, seed: int) -> tuple[np.ndarray, float]:
    start = time.process_time()
    sample = benchmark.generate(seed)
    seconds = time.process_time() - start
    return np.concatenate([sample["vorticity_history"], sample["vorticity_future"]], -1), seconds


def print_row(name: str, values: list[float] | np.ndarray) -> None:
    shares = " ".join(f"{value:>9.2%}" for value in values[:3])
    seconds = " ".join(f"{value:>9.2f}" for value in values[3:])
    print(f"{name:>6} {shares} {seconds}", flush=True)


if __name__ == "__main__":
    main()
