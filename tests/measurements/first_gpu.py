"""For the first person with a GPU: measure what was only estimated, and print what to report.

    python -m tests.measurements.first_gpu                     # half an hour on one GPU
    python -m tests.measurements.first_gpu --models lsm --sizes 64 256
    python -m tests.measurements.first_gpu --device cpu --models fno --sizes 32    # a trial

Every row of `lsm study efficiency --estimate` is measured: a training step in float32, tf32 and
bfloat16, and compiled, with its peak memory, and stands beside the estimate for the GPU of that
name (or for the RTX 3090). Each is measured in a process of its own; one that fails is a row with
its error, and the others go on. Figures go to a JSON file, and the page that is printed at the end
is meant to be sent as an issue of the repository, whole.
"""

import argparse
import json
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from flows.stack.gpus import find_driver
from flows.steps.reports.efficiency import form_config, forms_of
from flows.steps.training.devices import choose_device, device_name
from flows.steps.training.isolation import Report, run_isolated
from lsm_core.evaluation.cost import step_seconds
from lsm_core.evaluation.roofline import GPUS, Gpu, count_work, estimate
from lsm_core.experiments import trial
from lsm_core.models.catalogue import build_model
from lsm_core.problems.shape import ProblemShape
from lsm_core.reporting.published_results import efficiency_models, efficiency_sizes
from lsm_core.reporting.tables import table_of
from lsm_core.training.batches import Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.state import start_training

N_REPEATS = 20
WAYS: dict[str, dict[str, Any]] = {
    "float32": {},
    "tf32": {"precision": "tf32"},
    "bfloat16": {"precision": "bfloat16"},
    "compiled": {"compile": True},
}


def measure(
    model: Any, form: str, size: int, ways: dict[str, Any], device: str, report: Report
) -> dict[str, float]:
    """Return the seconds of a training step and the peak of its memory, in MiB."""
    chosen = choose_device(device)
    shape = ProblemShape(space=(size, size), n_inputs=1, n_outputs=1)
    config = replace(TrainingConfig(schedule="constant"), **ways)
    built = trial._on_device(build_model(form_config(model, form), shape), config, chosen, shape)
    state = start_training(built, config, n_batches=1)
    fields = Fields(torch.rand(1, size, size, 1), torch.rand(1, size, size, 1)).to(chosen)
    repeats = N_REPEATS if chosen.type == "cuda" else 3
    seconds = step_seconds(state, fields, repeats, config)
    peak = torch.cuda.max_memory_allocated(chosen) / 2**20 if chosen.type == "cuda" else 0.0
    return {"seconds": seconds, "peak MiB": peak}


def measure_all(models: Sequence[Any], sizes: Sequence[int], device: str) -> list[dict[str, Any]]:
    """Return a row for every model, size and way, with its estimate."""
    gpu, rows = nearest_gpu(device), []
    for size in sorted(sizes):
        shape = ProblemShape(space=(size, size), n_inputs=1, n_outputs=1)
        for model, form in forms_of(models):
            work = count_work(form_config(model, form), shape)
            by_paper = estimate(work, gpu)
            for way, changes in WAYS.items():
                if device == "cpu" and way in ("tf32", "bfloat16"):
                    continue
                row: dict[str, Any] = {"model": model, "form": form, "size": size, "way": way}
                row |= {"launches": work.n_launches, "estimate": by_paper.step_seconds}
                row |= {"estimate for": gpu.name, "bound": by_paper.bound}
                try:
                    row |= run_isolated(measure, model, form, size, changes, device)
                except Exception as error:  # whatever one fails with, the others are measured
                    row["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
                print(shown(row), flush=True)
                rows.append(row)
    return rows


def nearest_gpu(device: str) -> Gpu:
    """Return the GPU of the estimates that is this one, or the first."""
    name = torch.cuda.get_device_name() if device != "cpu" and torch.cuda.is_available() else ""
    words = {"3090": 0, "A100": 1, "H100": 2}
    return next((GPUS[number] for word, number in words.items() if word in name), GPUS[0])


def shown(row: dict[str, Any]) -> str:
    """Return a row in words, for whoever waits."""
    what = f"{row['model']} ({row['form']}) {row['size']} {row['way']}"
    if "error" in row:
        return f"{what}: {row['error']}"
    return f"{what}: {1000 * row['seconds']:.2f} ms, {1000 * row['estimate']:.2f} ms by paper"


def page(rows: Sequence[dict[str, Any]], device: str) -> str:
    """Return what to report: the machine, then every figure beside its estimate."""
    driver = find_driver()
    machine = {
        "device": device_name(choose_device(device)),
        "driver": driver.version if driver else "none",
        "torch": torch.__version__,
        "CUDA of torch": str(torch.version.cuda),
        "cuDNN": str(torch.backends.cudnn.version()),
        "processor": platform.processor() or platform.machine(),
    }
    lines = [
        {
            "model": f"{row['model']} ({row['form']})",
            "size": str(row["size"]),
            "way": row["way"],
            "launches": str(row["launches"]),
            "measured, ms": f"{1000 * row['seconds']:.2f}" if "seconds" in row else row["error"],
            f"by paper ({row['estimate for']}, float32), ms": f"{1000 * row['estimate']:.2f}",
            "ratio": f"{row['seconds'] / row['estimate']:.2f}" if "seconds" in row else "–",
            "peak MiB": f"{row['peak MiB']:.0f}" if "seconds" in row else "–",
        }
        for row in rows
    ]
    head = "\n".join(f"- {name}: {value}" for name, value in machine.items())
    ask = "Please send this page, with the JSON file, as an issue titled `GPU figures: YOUR GPU`."
    return f"# GPU figures\n\n{head}\n\n{table_of(lines).markdown()}\n\n{ask}"


def main() -> None:
    """Measure, keep and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", nargs="+", default=efficiency_models())
    parser.add_argument("--sizes", nargs="+", type=int, default=efficiency_sizes())
    parser.add_argument("--out", type=Path, default=Path("gpu-figures.json"))
    chosen = parser.parse_args()
    rows = measure_all(chosen.models, chosen.sizes, chosen.device)
    chosen.out.write_text(json.dumps(rows, indent=1))
    print(f"\n{page(rows, chosen.device)}")


if __name__ == "__main__":
    main()
