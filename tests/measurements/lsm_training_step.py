"""Print time and memory of an LSM training step, beside the straightforward form of the model.

    python -m tests.measurements.lsm_training_step                 # all tables, two threads
    python -m tests.measurements.lsm_training_step ratios 1 cpu    # one thread, CPU time
    python -m tests.measurements.lsm_training_step scaling

`ratios` trains both forms in one process, a step of one after a step of the other, and prints
the ratio of the medians, for time and for the bytes that a forward pass keeps for the backward
pass (weights not counted, memory that tensors share counted once). The straightforward form runs
with the optimiser of the released scripts, Adam in its plain form; ours with fused Adam. On a busy
machine give `cpu` as third argument: CPU time of the process in place of the clock.

`scaling` prints the time, the kept bytes and the added peak memory of a step of one sample on
128 x 128 to 1024 x 1024 points, and the exponent of the time in the number of points.
"""

import sys
import time
from collections.abc import Callable
from math import log
from statistics import median

import torch
from torch import Tensor, nn

from lsm_core.evaluation.cost import peak_bytes, saved_bytes
from lsm_core.models.lsm import Lsm, release_form
from lsm_core.models.released_weights import ReleasedSettings, from_released
from lsm_core.problems.shape import ProblemShape
from tests.lsm_core.models.straightforward import StraightforwardLsm

N_REPEATS = 7
MIB = 2**20

# Name: batch, grid, width, patch, inputs, outputs.
PROBLEMS: dict[str, tuple[int, tuple[int, ...], int, tuple[int, ...], int, int]] = {
    "elasticity_g": (20, (41, 41), 32, (3, 3), 1, 1),
    "darcy": (4, (85, 85), 64, (6, 6), 1, 1),
    "256 x 256": (1, (256, 256), 32, (16, 16), 1, 1),
    "navier_stokes, one step": (4, (64, 64), 64, (4, 4), 10, 1),
    "airfoil": (4, (221, 51), 32, (14, 4), 2, 1),
    "plasticity": (1, (101, 31, 20), 32, (7, 2, 2), 1, 4),
    "burgers 1024": (8, (1024,), 32, (64,), 1, 1),
}


def main() -> None:
    arguments = sys.argv[1:]
    table = arguments[0] if arguments else "all"
    torch.set_num_threads(int(arguments[1]) if len(arguments) > 1 else 2)
    clock = time.process_time if arguments[2:] == ["cpu"] else time.perf_counter
    print(f"{torch.get_num_threads()} threads, {clock.__name__}")
    if table in ("ratios", "all"):
        print_ratios(clock)
    if table in ("scaling", "all"):
        print_scaling(clock)


def print_ratios(clock: Callable[[], float]) -> None:
    columns = ("plain s", "ours s", "ratio", "plain MiB", "ours MiB", "ratio")
    print(f"{'problem':26}" + "".join(f"{column:>10}" for column in columns))
    for name, settings in PROBLEMS.items():
        plain, ours, inputs = both_forms(*settings)
        kept = [saved_bytes(model, inputs) / MIB for model in (plain, ours)]
        steps = [training_step(plain, inputs, fused=False), training_step(ours, inputs, fused=True)]
        seconds = interleaved_medians(steps, clock)
        print(
            f"{name:26}{seconds[0]:10.3f}{seconds[1]:10.3f}{seconds[1] / seconds[0]:10.3f}"
            f"{kept[0]:10.1f}{kept[1]:10.1f}{kept[1] / kept[0]:10.3f}",
            flush=True,
        )


def print_scaling(clock: Callable[[], float]) -> None:
    sizes, seconds = (128, 256, 512, 1024), []
    print(f"{'grid':>12}{'step s':>9}{'kept MiB':>10}{'peak MiB':>10}")
    for size in sizes:
        shape = ProblemShape(space=(size, size), n_inputs=1, n_outputs=1)
        peak = peak_bytes(release_form(), shape, batch_size=1) / MIB
        model, inputs = Lsm(release_form(), shape), torch.rand(1, size, size, 1)
        kept = saved_bytes(model, inputs) / MIB
        step = training_step(model, inputs, fused=True)
        seconds += interleaved_medians([step], clock, n_repeats=3)
        print(f"{size:>5} x {size:<4}{seconds[-1]:9.3f}{kept:10.1f}{peak:10.1f}", flush=True)
    exponent = log(seconds[-1] / seconds[0]) / log((sizes[-1] / sizes[0]) ** 2)
    print(f"time grows with the number of points to the power {exponent:.3f}")


def both_forms(
    batch: int,
    space: tuple[int, ...],
    width: int,
    patch: tuple[int, ...],
    n_inputs: int,
    n_outputs: int,
) -> tuple[nn.Module, nn.Module, Tensor]:
    """Return the straightforward model, ours with the same weights, and a batch of inputs."""
    torch.manual_seed(0)
    padding = tuple(-n % (16 * p) for n, p in zip(space, patch, strict=True))[::-1]
    plain = StraightforwardLsm(
        in_dim=n_inputs, out_dim=n_outputs, d_model=width, patch_size=patch, padding=padding
    )
    settings = ReleasedSettings(
        in_dim=n_inputs,
        out_dim=n_outputs,
        d_model=width,
        patch_size=patch,
        padding=padding,
        space=space,
    )
    return plain, from_released(plain.state_dict(), settings), torch.rand(batch, *space, n_inputs)


def training_step(model: nn.Module, inputs: Tensor, *, fused: bool) -> Callable[[], None]:
    """Return a function that does one training step."""
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-3, weight_decay=1e-4, fused=fused, foreach=False
    )

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def interleaved_medians(
    steps: list[Callable[[], None]], clock: Callable[[], float], n_repeats: int = N_REPEATS
) -> list[float]:
    """Return the median time of each step, taken in turn, after one round that is not counted."""
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(n_repeats + 1):
        for step, taken in zip(steps, times, strict=True):
            start = clock()
            step()
            taken.append(clock() - start)
    return [median(taken[1:]) for taken in times]


if __name__ == "__main__":
    main()
