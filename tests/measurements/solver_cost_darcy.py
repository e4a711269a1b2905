"""Print time and memory of the Darcy solve beside scipy's direct solves of the same system.

    python tests/measurements/solver_cost_darcy.py            # 421 and 1024 cells a side
    python tests/measurements/solver_cost_darcy.py 85 256     # others

Each solve runs in a process of its own with one thread. Seconds are those of the processor, which a
busy machine does not stretch. Memory is the peak of resident memory during the solve over that just
before it, where the matrix of a direct solve stands already (Linux only). The last columns compare
each solve with the conjugate gradients.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from lsm_core.benchmarks.darcy import Darcy
from lsm_core.solvers.finite_volumes.darcy import face_coefficients, solve_darcy

METHODS = ("conjugate gradients", "spsolve", "splu, symmetric ordering")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}


def main() -> None:
    resolutions = [int(argument) for argument in sys.argv[1:]] or [421, 1024]
    print(
        f"{'cells':>5}  {'method':<25} {'seconds':>8} {'MB':>7}"
        f" {'time':>7} {'memory':>7} {'difference':>11}"
    )
    for resolution in resolutions:
        reports = [measured_apart(resolution, method) for method in METHODS]
        ours = reports[0]
        for method, report in zip(METHODS, reports, strict=True):
            difference = np.linalg.norm(np.subtract(report["probe"], ours["probe"]))
            print(
                f"{resolution:>5}  {method:<25}"
                f" {report['seconds']:>8.3f} {report['megabytes']:>7.0f}"
                f" {report['seconds'] / ours['seconds']:>6.1f}x"
                f" {report['megabytes'] / ours['megabytes']:>6.1f}x"
                f" {difference / np.linalg.norm(ours['probe']):>11.1e}"
            )


def measured_apart(resolution: int, method: str) -> dict:
    finished = subprocess.run(
        [sys.executable, __file__, "--one", str(resolution), method],
        env=os.environ | ONE_THREAD,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(finished.stdout)


def measure(resolution: int, method: str) -> None:
    coefficient = Darcy(resolution=resolution).coefficient(0)
    source = np.ones_like(coefficient)
    solve_darcy(coefficient[:8, :8], source[:8, :8])  # Compile before the clock starts.
    matrix = None if method == METHODS[0] else darcy_matrix(coefficient)
    Path("/proc/self/clear_refs").write_text("5")  # Forget the peak of the preparation.
    before = resident_megabytes("VmRSS")
    start = time.process_time()
    if method == "conjugate gradients":
        pressure = solve_darcy(coefficient, source).pressure
    elif method == "spsolve":
        pressure = scipy.sparse.linalg.spsolve(matrix, source.ravel())
    else:
        factors = scipy.sparse.linalg.splu(
            matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
        )
        pressure = factors.solve(source.ravel())
    seconds = time.process_time() - start
    report = {
        "seconds": seconds,
        "megabytes": resident_megabytes("VmHWM") - before,
        "probe": pressure.ravel()[:: resolution + 1].tolist(),
    }
    print(json.dumps(report))


def darcy_matrix(coefficient: np.ndarray) -> scipy.sparse.csc_matrix:
    """Return the scheme as a sparse matrix, from the coefficients on the faces."""
    number = np.arange(coefficient.size).reshape(coefficient.shape)
    diagonal = np.zeros(coefficient.shape)
    rows, columns, values = [], [], []
    for axis, faces in enumerate(face_coefficients(coefficient)):
        across = np.moveaxis(faces, axis, 0)
        cells = np.moveaxis(number, axis, 0)
        diagonal += np.moveaxis(across[:-1] + across[1:], 0, axis)
        for first, second in ((cells[1:], cells[:-1]), (cells[:-1], cells[1:])):
            rows.append(first.ravel())
            columns.append(second.ravel())
            values.append(-across[1:-1].ravel())
    rows.append(number.ravel())
    columns.append(number.ravel())
    values.append(diagonal.ravel())
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    return scipy.sparse.csc_matrix(entries)


def resident_megabytes(entry: str) -> float:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(entry))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(int(sys.argv[2]), sys.argv[3])
    else:
        main()
