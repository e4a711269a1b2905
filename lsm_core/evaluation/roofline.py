"""How long a training step would take on a GPU that is not at hand: an estimate on paper.

A step is run on torch's meta device, where tensors have shapes and no numbers, and takes the forms
of the layers that GPUs take. Every operator that would launch a kernel is counted with the bytes
that it reads and writes and its floating-point operations. By the roofline model

    device = sum over kernels of max(bytes / bandwidth, operations / peak, shortest kernel)
    host   = launches x seconds a launch + views x seconds a view
    step   = max(device, host)

since the host launches ahead of the device. Nothing here was measured: caches make it faster,
kernels that fall short of the assumed shares of the peaks slower. An estimate tells what bounds a
step, not which of two models with similar figures wins.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from lsm_core.evaluation.cost import FLOPS
from lsm_core.models.catalogue import ModelConfig, build_model
from lsm_core.problems.shape import ProblemShape
from lsm_core.training.losses import summed_relative_l2

LAUNCH_SECONDS, VIEW_SECONDS = 6e-6, 1.2e-6
"""What torch needs on the host for an operator and for a view, of a usual processor."""
SHORTEST_KERNEL = 2e-6
SHARE_OF_BANDWIDTH, SHARE_OF_PEAK = 0.85, 0.6
"""What good kernels reach of a data sheet's figures."""
LAUNCHES_OF_ADAM = 8
"""The fused optimiser, the norm of the gradients and the sum of the loss."""
BYTES_OF_ADAM = 32
"""For a weight: it, its gradient and two moments read, three written, the gradient read again."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The peaks of a GPU by its data sheet, in float32 without tensor cores."""

    name: str
    flops: float
    bandwidth: float
    """Bytes a second."""


RTX_3090 = Gpu(name="RTX 3090", flops=35.6e12, bandwidth=936e9)
GPUS = (
    RTX_3090,
    Gpu(name="A100", flops=19.5e12, bandwidth=2039e9),
    Gpu(name="H100", flops=66.9e12, bandwidth=3352e9),
)
"""A100 and H100 as SXM modules with 80 GB."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a training step gives a GPU to do."""

    kernels: tuple[tuple[int, int], ...]
    """Bytes and operations of every launch, Adam apart."""
    n_views: int
    n_parameters: int

    @property
    def n_launches(self) -> int:
        """Return the launches of forward pass, loss, backward pass and Adam."""
        return len(self.kernels) + LAUNCHES_OF_ADAM

    @property
    def n_bytes(self) -> int:
        """Return the bytes read and written, as if there were no cache."""
        return sum(size for size, _ in self.kernels) + BYTES_OF_ADAM * self.n_parameters

    @property
    def flops(self) -> int:
        """Return the operations of products, convolutions and FFTs."""
        return sum(count for _, count in self.kernels)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long the work takes, by paper."""

    host_seconds: float
    device_seconds: float
    bytes_seconds: float
    """The part of the device's that goes to reading and writing."""

    @property
    def step_seconds(self) -> float:
        """Return the longer of the two that go on at once."""
        return max(self.host_seconds, self.device_seconds)

    @property
    def bound(self) -> str:
        """Return what the step waits for most: launches, memory or arithmetic."""
        if self.host_seconds > self.device_seconds:
            return "launches"
        return "memory" if self.bytes_seconds > self.device_seconds / 2 else "arithmetic"


def count_work(config: ModelConfig, shape: ProblemShape, batch_size: int = 1) -> Work:
    """Return what one training step of a model asks of a GPU."""
    model = build_model(config, shape).to("meta")
    inputs, targets = (
        torch.empty(batch_size, *shape.space, n_channels, device="meta")
        for n_channels in (shape.n_inputs, shape.n_outputs)
    )
    with _Watch() as watch:
        summed_relative_l2(model(inputs), targets).backward()
    return Work(
        kernels=tuple(watch.kernels), n_views=watch.n_views, n_parameters=_n_parameters(model)
    )


def estimate(work: Work, gpu: Gpu) -> Estimate:
    """Return how long that takes on a GPU, by its data sheet."""
    device = in_bytes = 0.0
    for n_bytes, flops in (*work.kernels, (BYTES_OF_ADAM * work.n_parameters, 0)):
        moving = n_bytes / (SHARE_OF_BANDWIDTH * gpu.bandwidth)
        took = max(moving, flops / (SHARE_OF_PEAK * gpu.flops), SHORTEST_KERNEL)
        device += took
        in_bytes += took if took == moving else 0.0
    host = work.n_launches * LAUNCH_SECONDS + work.n_views * VIEW_SECONDS
    return Estimate(host_seconds=host, device_seconds=device, bytes_seconds=in_bytes)


class _Watch(TorchDispatchMode):
    """Notes the bytes and operations of every operator that is more than a view."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[tuple[int, int]] = []
        self.n_views = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func is torch.ops.prim.device.default:
            return result
        if func.is_view or func in _WITHOUT_KERNEL:
            self.n_views += 1
            return result
        touched = {id(each): each for each in _tensors((args, kwargs, result))}
        if touched:
            n_bytes = sum(each.numel() * each.element_size() for each in touched.values())
            count = _COUNTS.get(func._overloadpacket)
            flops = count(*args, **kwargs, out_val=result) if count else 0
            self.kernels.append((n_bytes, int(flops)))
        return result


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (each for each in tree_leaves(tree) if isinstance(each, Tensor) and each.is_meta)


def _n_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


_COUNTS = {**flop_registry, **FLOPS}
_aten = torch.ops.aten
_WITHOUT_KERNEL = {
    _aten.detach.default,
    _aten.alias.default,
    _aten.empty.memory_format,
    _aten.empty_like.default,
    _aten.empty_strided.default,
    _aten.new_empty.default,
    _aten.new_empty_strided.default,
    _aten._unsafe_view.default,
    _aten.lift_fresh.default,
}
