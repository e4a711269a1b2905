"""What a training step of LSM (ours) costs beside one of FNO with as many parameters.

    python -m tests.measurements.seconds_beside_fno

One thread; steps of both alternate, and the time is that of the processor, so that other work on
the machine disturbs both alike. Prints medians in milliseconds and their ratio. LSM (ours) gets
waves until another would bring it above FNO: a wider one (17 channels in place of 16) would be
measured by how convolutions fill up their blocks of 16 channels, not by its size.
"""

from dataclasses import replace
from itertools import count
from statistics import median
from time import process_time

import torch

from lsm_core.experiments.presets import model_config, parameters
from lsm_core.experiments.protocols import data_plan
from lsm_core.models.catalogue import build_model
from lsm_core.models.lsm_ours import LsmOursConfig
from lsm_core.names import BenchmarkName
from lsm_core.problems.shape import ProblemShape
from lsm_core.training.batches import Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.loop import train_step
from lsm_core.training.state import start_training

PROBLEMS: tuple[BenchmarkName, ...] = ("burgers", "darcy")
BATCHES = (4, 20)
N_STEPS = 20


def as_large(config: LsmOursConfig, target: int, shape: ProblemShape) -> LsmOursConfig:
    """Return LSM (ours) with as many waves as a number of parameters allows."""
    more = (replace(config, n_waves=config.n_waves + extra) for extra in count(1))
    for larger in more:
        if parameters(larger, shape) > target:
            return config
        config = larger
    raise AssertionError("there are always more waves")


def main() -> None:
    torch.set_num_threads(1)
    for benchmark in PROBLEMS:
        shape = data_plan("quick", benchmark).benchmark.shape
        fno = model_config("quick", benchmark, "fno")
        ours = model_config("quick", benchmark, "lsm_ours")
        assert isinstance(ours, LsmOursConfig)
        configs = fno, as_large(ours, parameters(fno, shape), shape)
        sizes = [parameters(config, shape) for config in configs]
        for batch in BATCHES:
            states = [
                start_training(build_model(config, shape), TrainingConfig(schedule="constant"), 1)
                for config in configs
            ]
            fields = Fields(
                torch.rand(batch, *shape.space, shape.n_inputs),
                torch.rand(batch, *shape.space, shape.n_outputs),
            )
            times: list[list[float]] = [[] for _ in states]
            for _ in range(N_STEPS + 3):
                for state, taken in zip(states, times, strict=True):
                    start = process_time()
                    train_step(state, fields)
                    taken.append(process_time() - start)
            theirs, own = (1e3 * median(taken[3:]) for taken in times)
            print(
                f"{benchmark}, batch {batch}: FNO ({sizes[0]:,}) {theirs:.1f} ms, "
                f"LSM (ours) ({sizes[1]:,}) {own:.1f} ms, {own / theirs:.2f} times",
                flush=True,
            )


if __name__ == "__main__":
    main()
