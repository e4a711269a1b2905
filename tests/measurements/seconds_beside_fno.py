"""What a training step of LSM (ours) costs beside one of FNO with as many parameters.

    python -m tests.measurements.seconds_beside_fno

One thread; steps of both alternate, and the time is that of the processor, so that other work on
the machine disturbs both alike. Prints medians in milliseconds and their ratio.
"""

from collections.abc import Iterator
from statistics import median
from time import process_time

import torch

from lsm_core.experiments.presets import matched, model_config, parameters
from lsm_core.experiments.protocols import data_plan
from lsm_core.models.catalogue import build_model
from lsm_core.names import BenchmarkName, ModelName
from lsm_core.training.batches import Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.loop import train_step
from lsm_core.training.state import start_training

PROBLEMS: tuple[BenchmarkName, ...] = ("burgers", "darcy")
BATCHES = (4, 20)
N_STEPS = 20


def milliseconds(
    benchmark: BenchmarkName, batch: int, models: tuple[ModelName, ...]
) -> Iterator[tuple[ModelName, int, float]]:
    """Yield each model, its parameters and its median milliseconds a step."""
    shape = data_plan("quick", benchmark).benchmark.shape
    target = parameters(model_config("quick", benchmark, "fno"), shape)
    batch_fields = Fields(
        torch.rand(batch, *shape.space, shape.n_inputs),
        torch.rand(batch, *shape.space, shape.n_outputs),
    )
    states = {}
    for model in models:
        config = matched(model_config("quick", benchmark, model), target, shape)
        states[model] = start_training(
            build_model(config, shape), TrainingConfig(schedule="constant"), 1
        )
    times: dict[ModelName, list[float]] = {model: [] for model in models}
    for _ in range(N_STEPS + 3):
        for model, state in states.items():
            start = process_time()
            train_step(state, batch_fields)
            times[model].append(process_time() - start)
    for model, state in states.items():
        size = sum(parameter.numel() for parameter in state.model.parameters())
        yield model, size, 1e3 * median(times[model][3:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for problem in PROBLEMS:
        for batch_size in BATCHES:
            (_, fno_size, fno), (_, size, ours) = milliseconds(
                problem, batch_size, ("fno", "lsm_ours")
            )
            print(
                f"{problem}, batch {batch_size}: FNO ({fno_size:,}) {fno:.1f} ms, "
                f"LSM (ours) ({size:,}) {ours:.1f} ms, {ours / fno:.2f} times",
                flush=True,
            )
