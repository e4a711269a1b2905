"""Which device a run trains on, which GPUs it sees, and which processes train together."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch import distributed

from flows.errors import BadInput
from flows.steps.training.workplace import VISIBLE, Slot

RANK_PATIENCE = timedelta(hours=2)
"""How long ranks wait for a message: the first one saves and measures while the others wait.

A rank that died is noticed at once by whoever started it, torchrun or `run_isolated`.
"""


def slots(
    name: str, n_cells: int, n_workers: int, *, n_ranks: int = 1, runs_per_gpu: int = 1
) -> list[Slot]:
    """Return the room for each training that runs at once: a GPU each, or a core each without.

    A run with several ranks has a GPU for each of them. Every process sees no GPUs but its own, so
    that nothing it does can touch another's. A device with a number is meant alone. BadInput if
    there are fewer GPUs than that takes.
    """
    gpus = visible_gpus() if name == "auto" or name.startswith("cuda") else []
    if name == "cpu" or (name == "auto" and not gpus):
        return [Slot("cpu", "")] * max(1, min(n_cells, n_workers // n_ranks))
    if not gpus:  # `choose_device` says what is wrong, or takes what is no GPU of CUDA
        return [Slot(name)]
    if name not in ("auto", "cuda"):
        gpus = [gpus[_number(name, len(gpus))]]
    groups = [gpus[first : first + n_ranks] for first in range(0, len(gpus), n_ranks)]
    whole = [",".join(group) for group in groups if len(group) == n_ranks]
    if not whole:
        raise BadInput(
            f"{n_ranks} ranks need a GPU each, and {name} has {len(gpus)} here; take fewer ranks, "
            "or LSM_DEVICE=cpu"
        )
    # The second run of a GPU comes after the first one of every other.
    return [Slot("cuda", group) for _ in range(runs_per_gpu) for group in whole][: max(1, n_cells)]


def visible_gpus() -> list[str]:
    """Return the GPUs that CUDA shows to this process, as CUDA_VISIBLE_DEVICES names them."""
    n_gpus = torch.cuda.device_count()
    outer = os.environ.get(VISIBLE)
    named = range(n_gpus) if outer is None else outer.split(",")
    return [str(each).strip() for each in named][:n_gpus]


def choose_device(name: str) -> torch.device:
    """Return the device by name; `auto` takes a GPU if there is one.

    ValueError if it is not there, or not there for every rank of this machine.
    """
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
        raise ValueError(
            f"LSM_DEVICE is {name}, but torch sees no such device here; `lsm doctor` says why"
        )
    if device.type != "cuda":
        return device
    n_gpus, n_local = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if n_local > 1 and device.index is not None:
        raise ValueError(f"LSM_DEVICE is {name}, one GPU for {n_local} ranks; leave the number out")
    local = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
    if local >= n_gpus:
        raise ValueError(f"there is no GPU {local} here: torch sees {n_gpus}, counted from 0")
    device = torch.device("cuda", local)
    # What has no device of its own, such as a random state, then belongs to this one.
    torch.cuda.set_device(device)
    return device


def device_name(device: torch.device) -> str:
    """Return what a person calls a device: the GPU's product, or the processor's kind."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return str(device)


def gpu_uuids(device: torch.device) -> list[str]:
    """Return how NVML, which counts all GPUs and otherwise than CUDA, names a device; or none."""
    if device.type != "cuda":
        return []
    return [f"GPU-{torch.cuda.get_device_properties(device).uuid}"]


@contextmanager
def joined_ranks(device: torch.device) -> Iterator[None]:
    """Join the processes that the environment names, as torchrun sets it; leave them at the end."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or distributed.is_initialized():
        yield
        return
    on_gpu = device.type == "cuda"
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo",
        timeout=RANK_PATIENCE,
        # Known from the start, NCCL connects at once and on the right GPU.
        device_id=device if on_gpu else None,
    )
    try:
        yield
    finally:
        distributed.destroy_process_group()


def _number(name: str, n_gpus: int) -> int:
    """Return the number in `cuda:2`; BadInput if there is no such GPU."""
    number = name.partition(":")[2]
    if not number.isdecimal() or int(number) >= n_gpus:
        raise BadInput(
            f"LSM_DEVICE is {name}, and torch sees {n_gpus} GPUs here, from cuda:0 on; name one of "
            "them, or cuda for all"
        )
    return int(number)
