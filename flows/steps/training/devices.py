"""Which device a run trains on, and which processes train together."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed


def choose_device(name: str) -> torch.device:
    """Return the device by name; `auto` takes a GPU if there is one."""
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


def slots(name: str, n_cells: int, n_workers: int) -> list[str]:
    """Return the device of each training that runs at once: one a GPU, or one a core without.

    A device with a number is meant alone.
    """
    n_gpus = torch.cuda.device_count()
    if name in ("auto", "cuda") and n_gpus:
        return [f"cuda:{number}" for number in range(n_gpus)]
    return [name] * (1 if name.startswith(("cuda", "mps")) else max(1, min(n_cells, n_workers)))


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
