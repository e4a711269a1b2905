"""Print what an airfoil costs and how good it is.

Run `python -m tests.measurements.solver_cost_airfoil`. Thirty seeds take two minutes on one thread,
the doubled mesh one more. Set OMP_NUM_THREADS=1 to measure one thread.
"""

import time

import numpy as np
from scipy.interpolate import LinearNDInterpolator

from lsm_core.benchmarks.airfoil import Airfoil, undeformed_flow
from lsm_core.problems.sample import Sample
from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_volumes.euler import lift_and_drag, mach_number, node_states

N_SEEDS = 30


def main() -> None:
    """Print convergence and cost of the seeds, then the mesh against coarser and finer ones."""
    airfoil = Airfoil()
    Airfoil(n_wake=16, n_surface=40, n_normal=16).generate(0)  # compiles
    start = time.process_time()
    undeformed_flow(airfoil)
    print(f"unbent airfoil, from rest  {time.process_time() - start:.1f} s, once a process")
    print_seeds(airfoil)
    for scale in (0.5, 1.0, 2.0):
        print_unbent(scaled(scale))
    print_refinement()


def print_seeds(airfoil: Airfoil) -> None:
    """Print how many seeds converged, by how many orders, and what they took."""
    orders, iterations, seconds = [], [], []
    for seed in range(N_SEEDS):
        start = time.process_time()
        try:
            sample = airfoil.generate(seed)
        except SolveFailed as failure:
            print(f"seed {seed}: {failure}")
            continue
        seconds.append(time.process_time() - start)
        iterations.append(int(sample["n_iterations"]))
        orders.append(np.log10(sample["residuals"][0] / sample["residuals"][iterations[-1]]))
    print(f"converged                  {len(orders)} of {N_SEEDS} seeds")
    print(f"orders of the residual     at least {min(orders):.1f} below the start")
    print(f"Newton iterations          {min(iterations)} to {max(iterations)}")
    print(f"processor seconds a sample mean {np.mean(seconds):.2f}, max {np.max(seconds):.2f}")


def scaled(scale: float) -> Airfoil:
    """Return the benchmark with finer or coarser cells."""
    return Airfoil(n_wake=int(50 * scale), n_surface=int(120 * scale), n_normal=int(50 * scale))


def print_unbent(airfoil: Airfoil) -> None:
    """Print lift, drag and shock of the unbent airfoil."""
    start = time.process_time()
    mesh, flow = airfoil.mesh(np.zeros(8)), undeformed_flow(airfoil)
    lift, drag = lift_and_drag(mesh, airfoil.stream, flow.states)
    mach = mach_number(node_states(mesh, flow.states), airfoil.heat_ratio)
    surface = slice(airfoil.n_wake + airfoil.n_surface // 2, airfoil.n_wake, -1)
    x, along = mesh.nodes[surface, 0, 0], mach[surface, 0]
    steepest = np.argmin(np.diff(along))
    shock = (x[steepest] + x[steepest + 1]) / 2
    size = "x".join(str(n) for n in airfoil.mesh_size.n_nodes)
    print(
        f"unbent {size:8s} lift {lift:+.1e}, drag {drag:.4f}, shock at {shock:.3f}, "
        f"largest Mach {mach.max():.3f}, on the surface {along.max():.3f}, "
        f"{flow.residuals.size - 1} iterations, {time.process_time() - start:.0f} s"
    )


def print_refinement() -> None:
    """Print how far the Mach number of seed 0 is from the doubled mesh, near the airfoil."""
    reference = scaled(2.0).generate(0)
    points = np.stack([reference["mesh_x"].ravel(), reference["mesh_y"].ravel()], -1)
    interpolate = LinearNDInterpolator(points, reference["mach"].ravel())
    for scale in (0.5, 1.0):
        print(f"seed 0 at scale {scale}: {distance(scaled(scale).generate(0), interpolate)}")
    lift, drag = float(reference["lift"]), float(reference["drag"])
    print(f"seed 0 at scale 2.0: lift {lift:+.4f}, drag {drag:.4f}")


def distance(sample: Sample, interpolate: LinearNDInterpolator) -> str:
    """Return in words the distance of one sample from the reference."""
    x, y, mach = sample["mesh_x"], sample["mesh_y"], sample["mach"]
    near = (np.abs(x - 0.5) < 1.5) & (np.abs(y) < 1)
    expected = interpolate(x[near], y[near])
    error = np.linalg.norm(mach[near] - expected) / np.linalg.norm(expected)
    lift, drag = float(sample["lift"]), float(sample["drag"])
    return f"Mach {100 * error:.2f} % from the doubled mesh, lift {lift:+.4f}, drag {drag:.4f}"


if __name__ == "__main__":
    main()
