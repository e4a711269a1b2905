"""One real training step on a device, beside the same step on the CPU.

    python -m flows.steps.training.first_step cuda

`lsm doctor` runs it on every GPU, in a process that sees no other. It prints a line of JSON and
fails if the device computes something else than the CPU.
"""

import json
import sys
import time

import torch

from flows.steps.training.devices import choose_device, device_name
from lsm_core.models.catalogue import build_model
from lsm_core.models.lsm import release_form
from lsm_core.problems.shape import ProblemShape
from lsm_core.training.batches import Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.loop import train_step
from lsm_core.training.state import start_training

SHAPE = ProblemShape(space=(64, 64), n_inputs=1, n_outputs=1)
TOLERANCE = 2e-2
"""Of the losses of three steps: TF32 and other orders of sums stay below, a broken kernel not."""
N_STEPS = 3


def take_steps(device: torch.device) -> tuple[list[float], float]:
    """Return the losses of the first steps of a small LSM, and the seconds of the last step."""
    torch.manual_seed(0)
    model = build_model(release_form(width=8, n_scales=3), SHAPE)
    fields = Fields(torch.rand(4, *SHAPE.space, 1), torch.rand(4, *SHAPE.space, 1))
    config = TrainingConfig(schedule="constant")
    state = start_training(model.to(device), config, n_batches=1)
    losses, began = [], 0.0
    for _ in range(N_STEPS):
        began = time.perf_counter()
        losses.append(train_step(state, fields.to(device), config).read()[0])
    return losses, time.perf_counter() - began


def main(name: str) -> int:
    """Print what was found; return an exit code."""
    device = choose_device(name)
    found, seconds = take_steps(device)
    expected, _ = take_steps(torch.device("cpu"))
    for ours, theirs in zip(found, expected, strict=True):
        if not abs(ours - theirs) <= TOLERANCE * theirs:
            print(f"losses are {found} where the CPU has {expected}", file=sys.stderr)
            return 1
    said = f"{device_name(device)} trains, {1000 * seconds:.0f} ms for a small step"
    if device.type == "cuda":
        free, whole = torch.cuda.mem_get_info(device)
        said += f", {free / 2**30:.1f} of {whole / 2**30:.1f} GiB free"
    print(json.dumps({"text": said}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
