"""Print how often shipped models call inputs strange: those like their own, and those that differ.

    python -m tests.measurements.strange_inputs [samples]

Inputs are drawn from seeds that no training or calibration has seen. What an input does not show is
told by the file that says it; such rows are marked.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from flows.steps.models.packaging import PackagedModel
from flows.steps.models.prediction import Outputs, predict_file
from flows.steps.models.shipped import open_shipped, shipped_names
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.variations import KNOBS, NEW_SEEDS, inputs_of
from lsm_core.solvers.convergence import SolveFailed
from storage.location import Location

CHANGED: dict[str, tuple[dict[str, float], ...]] = {
    "airfoil": ({"displacement_range": 0.1},),
    "burgers": ({"viscosity": 0.01},),
    "darcy": ({"high_coefficient": 6.0}, {"high_coefficient": 24.0}),
    "elasticity_g": ({"largest_radius": 0.45},),
    "elasticity_p": ({"largest_radius": 0.45},),
    "pipe": ({"centreline_range": 2.0},),
    "plasticity": ({"amplitude": 6.0},),
}
"""Parameters of problems, as others than those of training: bent twice as far, another contrast."""


def main() -> None:
    n_samples = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    print("| problem | changed | called strange |\n|---|---|---:|")
    for name in shipped_names():
        packaged = open_shipped(name)
        for changes in ({}, *CHANGED.get(name, ())):
            found = part_called_strange(packaged, changes, n_samples)
            told = ", ".join(f"{key} {value:g}" for key, value in changes.items())
            hidden = ", said by the file" if is_hidden(name, changes) else ""
            print(f"| `{name}` | {told or 'nothing'}{hidden} | {found:.1%} |", flush=True)


def part_called_strange(
    packaged: PackagedModel, changes: dict[str, float], n_samples: int
) -> float:
    """Return how many of the inputs of new seeds a model calls strange, asked by a file."""
    with tempfile.TemporaryDirectory() as folder:
        source, fields = Path(folder) / "given.npz", Path(folder) / "predicted.npz"
        samples = list(drawn(replace(packaged.benchmark, **changes), n_samples))
        given = {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
        hidden = {k: v for k, v in changes.items() if is_hidden(packaged.benchmark.name, {k: v})}
        np.savez(source, allow_pickle=False, **given, **hidden)
        root = Location.parse(folder)
        predict_file(packaged.benchmark.name, source, Outputs(fields=fields), root, "")
        return float(np.load(fields)["is_strange"].mean())


def drawn(problem: Benchmark, n_samples: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the inputs of new seeds, for as many as have some."""
    for seed in range(NEW_SEEDS, NEW_SEEDS + n_samples):
        try:
            yield dict(inputs_of(problem, seed))
        except (SolveFailed, ValueError):
            continue


def is_hidden(name: str, changes: dict[str, float]) -> bool:
    """Return whether an input does not show one of these parameters."""
    return any(knob.name in changes and not knob.shows for knob in KNOBS[name])


if __name__ == "__main__":
    main()
