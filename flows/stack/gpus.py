"""Whether the GPUs of this machine can train: driver, build of torch, and a real step on each."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

import torch

LEAST_DRIVER = {"11": 450, "12": 525, "13": 580}
"""The oldest driver for each CUDA that torch is built with, by NVIDIA's table of compatibility."""
FIRST_STEP = "flows.steps.training.first_step"
STEP_SECONDS = 300.0

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver and the GPUs that it knows, whether torch can use them or not."""

    version: str
    names: tuple[str, ...]

    @property
    def major(self) -> int:
        """Return the number that compatibility goes by."""
        return int(self.version.partition(".")[0])


def check_device(wanted: str) -> tuple[State, str]:
    """Check that what training is to run on is there, and that every GPU takes a step."""
    driver, n_gpus = find_driver(), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cpu" or (wanted == "auto" and not n_gpus and driver is None):
        return "ok", f"{torch.get_num_threads()} threads of the CPU" + (
            "" if wanted == "cpu" else "; no GPU"
        )
    if wanted == "mps":
        there = torch.backends.mps.is_available()
        text = "Apple's GPU" if there else "LSM_DEVICE is mps, but torch sees no such device here"
        return ("ok" if there else "problem"), text
    if not n_gpus:
        said = f"LSM_DEVICE is {wanted}, but torch sees no GPU" if wanted != "auto" else "no GPU"
        return ("warning" if wanted == "auto" else "problem"), f"{said}: {why_no_gpu(driver)}"
    number = wanted.partition(":")[2]
    if number and int(number) >= n_gpus:
        return "problem", f"LSM_DEVICE is {wanted}, but there are {n_gpus} GPUs, from cuda:0 on"
    return _steps_on(_visible(n_gpus) if not number else [_visible(n_gpus)[int(number)]])


def find_driver() -> Driver | None:
    """Return what nvidia-smi says, or None without a driver."""
    asked = ("nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader")
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout
        lines = [line.split(", ", 1) for line in told.splitlines() if ", " in line]
        return Driver(lines[0][0], tuple(name for _, name in lines))
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def why_no_gpu(driver: Driver | None) -> str:
    """Return why torch sees none, and what to do."""
    built = torch.version.cuda
    needed = LEAST_DRIVER.get((built or "").partition(".")[0])
    if built is None:
        found = f"driver {driver.version} is there, but " if driver else ""
        return f"{found}torch {torch.__version__} is built for CPUs; install its CUDA build"
    if driver is None:
        return (
            f"nvidia-smi finds no driver; torch is built with CUDA {built}, which needs driver "
            f"{needed} or newer"
        )
    if needed is not None and driver.major < needed:
        return (
            f"driver {driver.version} is too old for CUDA {built}, which torch is built with; "
            f"update it to {needed} or newer, or install a torch that is built with an older CUDA"
        )
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None:
        return f"CUDA_VISIBLE_DEVICES is {hidden!r}, which hides the {len(driver.names)} there are"
    return (
        f"driver {driver.version} and CUDA {built} fit; in a container, is it started with the "
        "NVIDIA runtime and /dev/nvidia*?"
    )


def _visible(n_gpus: int) -> list[str]:
    outer = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [str(number) for number in range(n_gpus)] if outer is None else outer.split(",")[:n_gpus]


def _steps_on(gpus: list[str]) -> tuple[State, str]:
    """Run a training step on each GPU, in a process that sees no other."""
    said, failed = [], False
    for gpu in gpus:
        found = first_step("cuda", {"CUDA_VISIBLE_DEVICES": gpu})
        failed = failed or "error" in found
        said.append(f"GPU {gpu}: {found.get('error') or found['text']}")
    return ("problem" if failed else "ok"), "; ".join(said)


def first_step(device: str, variables: dict[str, str]) -> dict[str, str]:
    """Return what a process says that trains one step on a device: a text, or an error."""
    command = [sys.executable, "-m", FIRST_STEP, device]
    environment = {**os.environ, **variables}
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"a training step did not end within {STEP_SECONDS:.0f} s"}
    if ended.returncode == 0:
        return dict(json.loads(ended.stdout.splitlines()[-1]))
    last = ended.stderr.strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
    return {"error": f"a training step failed: {last[0]}"}
