"""Which device a run trains on, and which processes train together."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed, nn

from lsm_core.layers.ranks import n_ranks
from lsm_core.training.config import TrainingConfig


def choose_device(name: str) -> torch.device:
    """Return the device by name; `auto` takes a graphics processor if there is one."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"LSM_DEVICE is auto, cpu, cuda or mps, not {name!r}") from error
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not available.get(device.type, False):
        raise ValueError(f"LSM_DEVICE is {name}, but torch sees no such device here")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", local)
    return device


def prepared(model: nn.Module, config: TrainingConfig, device: torch.device) -> nn.Module:
    """Return the model on its device, in the precision of the run, compiled if it is asked for.

    Graphics processors were not at hand when this was written: what concerns them is short and
    was not run.
    """
    if config.precision != "float32" and device.type != "cuda":
        raise ValueError(
            f"precision {config.precision} is for cuda; on {device.type} train in float32"
        )
    if config.precision != "float32":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    model = model.to(device)
    if config.compile and device.type == "cuda":
        model.compile()
    _require_shared_statistics(model, config)
    return model


@contextmanager
def joined_ranks(device: torch.device) -> Iterator[None]:
    """Join the processes that the environment names, as torchrun sets it; leave them at the end."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or distributed.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()


def _require_shared_statistics(model: nn.Module, config: TrainingConfig) -> None:
    """Refuse what several ranks would not compute as one."""
    if n_ranks() == 1:
        return
    if config.test_statistics == "batch":
        raise ValueError("test_statistics `batch` is for one rank; run on one or take `running`")
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ValueError(f"{name} keeps statistics of its own rank; train this model on one")
