"""What a model costs: parameters, operations, time and memory.

This is the one place in the core that reads a clock.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import log2, prod
from multiprocessing import get_context
from statistics import median
from time import perf_counter, process_time
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from lsm_core.models.catalogue import ModelConfig, build_model
from lsm_core.models.fno import FnoConfig
from lsm_core.problems.shape import ProblemShape
from lsm_core.training.batches import Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.loop import train_step
from lsm_core.training.state import TrainingState, start_training

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one batch of one model costs."""

    n_parameters: int
    forward_flops: int
    """Floating-point operations of a forward pass: products of matrices, convolutions and FFTs."""
    saved_bytes: int
    """Bytes that a forward pass keeps for the backward pass, weights not counted."""
    step_seconds: float
    """Median time of a training step: forward, loss, backward and Adam."""
    peak_bytes: int
    """Most memory in use while training, weights, gradients and Adam's moments included."""


def measure_cost(
    config: ModelConfig,
    shape: ProblemShape,
    batch_size: int = 1,
    n_repeats: int = 5,
    device: str = "cpu",
) -> Cost:
    """Return the cost of a model on a problem of this shape."""
    if torch.device(device).type not in ("cpu", "cuda"):
        raise ValueError(f"memory can be measured on cpu and cuda, not on {device}")
    state, batch = _start(config, shape, batch_size, device)
    return Cost(
        n_parameters=count_parameters(state.model),
        forward_flops=forward_flops(state.model, batch.inputs),
        saved_bytes=saved_bytes(state.model, batch.inputs),
        step_seconds=step_seconds(state, batch, n_repeats),
        peak_bytes=peak_bytes(config, shape, batch_size, device),
    )


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable numbers; a complex weight is two."""
    return sum(
        parameter.numel() * (2 if parameter.is_complex() else 1)
        for parameter in model.parameters()
        if parameter.requires_grad
    )


def forward_flops(model: nn.Module, inputs: Tensor) -> int:
    """Return the operations of one forward pass in the model's present mode.

    A multiplication and an addition are two. Functions of single values are not counted.
    """
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=FLOPS) as counter:
        model(inputs)
    return counter.get_total_flops()


def saved_bytes(model: nn.Module, inputs: Tensor) -> int:
    """Return the bytes kept between forward and backward pass.

    Memory that several tensors share counts once, and that of weights and buffers not at all.
    """
    permanent = [*model.parameters(), *model.buffers()]
    known = {tensor.untyped_storage().data_ptr() for tensor in permanent}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in known:
            kept[address] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        # While the output lives so does all that was saved: no address is used twice.
        output = model(inputs)
    total = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    del output
    return total


def step_seconds(
    state: TrainingState, batch: Fields, n_repeats: int, config: TrainingConfig | None = None
) -> float:
    """Return the median time of a training step, after one that is not counted."""
    train_step(state, batch, config)
    times = []
    for _ in range(n_repeats):
        _synchronize(batch.inputs.device)
        start = perf_counter()
        train_step(state, batch, config)
        _synchronize(batch.inputs.device)
        times.append(perf_counter() - start)
    return median(times)


def peak_bytes(
    config: ModelConfig, shape: ProblemShape, batch_size: int, device: str = "cpu"
) -> int:
    """Return the most memory that training adds to what is in use before.

    On CUDA these are bytes of tensors. On a CPU the system counts pages, and only ever upwards:
    a new process trains, so that nothing before hides the peak.
    """
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        _train(config, shape, batch_size, device, n_steps=2)
        return torch.cuda.max_memory_allocated(device) - before
    # A process that is forked from a small server starts with a small peak of its own. One that
    # is started by exec inherits the peak of its parent.
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("forkserver")) as fresh:
        arguments = config, shape, batch_size, torch.get_num_threads()
        return fresh.submit(_added_resident_bytes, *arguments).result()


def _added_resident_bytes(
    config: ModelConfig, shape: ProblemShape, batch_size: int, n_threads: int
) -> int:
    """Return by how much training raises the peak resident size of this process."""
    torch.set_num_threads(n_threads)
    # A model of no size, so that what is loaded at first use is not counted.
    smallest = ProblemShape(space=(8,), n_inputs=1, n_outputs=1)
    _train(FnoConfig(width=1, n_modes=1), smallest, 1, "cpu", n_steps=1)
    before = _peak_resident_bytes()
    _train(config, shape, batch_size, "cpu", n_steps=2)
    return _peak_resident_bytes() - before


def _peak_resident_bytes() -> int:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _train(
    config: ModelConfig, shape: ProblemShape, batch_size: int, device: str, n_steps: int
) -> None:
    state, batch = _start(config, shape, batch_size, device)
    for _ in range(n_steps):
        train_step(state, batch)


def _start(
    config: ModelConfig, shape: ProblemShape, batch_size: int, device: str
) -> tuple[TrainingState, Fields]:
    """Return a model about to be trained, and random fields for it.

    The fields are uniform in [0, 1], which suits positions of points, too.
    """
    model = build_model(config, shape).to(device)
    fields = Fields(
        torch.rand(batch_size, *shape.space, shape.n_inputs, device=device),
        torch.rand(batch_size, *shape.space, shape.n_outputs, device=device),
    )
    return start_training(model, TrainingConfig(schedule="constant"), n_batches=1), fields


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _raw(count: Callable[..., int]) -> Callable[..., int]:
    """Return the function marked as one that takes tensors, not their shapes."""
    count._get_raw = True  # type: ignore[attr-defined]
    return count


def _fft_flops(factor: float, *, inverse: bool = False) -> Callable[..., int]:
    """Return what counts 5 n log2(n) for each transform of n complex values, half for real ones."""

    def count(field: Tensor, axes: list[int], *_: Any, out_val: Tensor) -> int:
        values = out_val if inverse else field
        n_points = prod(values.shape[axis] for axis in axes)
        return round(factor * values.numel() * log2(max(n_points, 2)))

    return _raw(count)


@_raw
def _batched_product_flops(first: Tensor, second: Tensor, **_: Any) -> int:
    """Return the operations of products of matrices; torch counts complex ones as if real."""
    factor = 8 if first.is_complex() else 2
    return factor * first.numel() * second.shape[-1]


FLOPS = {
    torch.ops.aten._fft_r2c: _fft_flops(2.5),
    torch.ops.aten._fft_c2r: _fft_flops(2.5, inverse=True),
    torch.ops.aten._fft_c2c: _fft_flops(5.0),
    torch.ops.aten.bmm: _batched_product_flops,
}


def least_seconds(work: Callable[[], Any], n_repeats: int = 3) -> float:
    """Return the least processor time of some work, after one try that is not counted.

    The least, since whatever disturbs only adds.
    """
    work()
    return min(timed(work)[1] for _ in range(n_repeats))


def timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    """Return what some work comes to and its processor time.

    What else a machine does adds to the clock on the wall, not to this.
    """
    start = process_time()
    answer = work()
    return answer, process_time() - start
