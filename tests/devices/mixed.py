"""Models in bfloat16 beside the same in float32, for real, on a CPU.

    ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 python -m tests.devices.mixed [MODEL ...]

One line of JSON for each model on its own benchmark and on points: how far the output is from that
in float32 beside its size, and the cosine of the angle between the gradients. The variable has to
be set before torch is loaded: without it products of bfloat16 end the process on some processors.
"""

import json
import sys
import warnings
from typing import Any, get_args

import torch
from torch import Tensor, nn

from lsm_core.experiments.presets import applies, experiment
from lsm_core.layers.forms import plain_forms
from lsm_core.models.catalogue import build_model
from lsm_core.names import BenchmarkName, ModelName
from lsm_core.surrogates.operator import shape_of_one_step
from tests.devices.cases import default_benchmark

SIZE = 0.1
"""The least that outputs are taken to be."""


def compared(model: ModelName, benchmark: BenchmarkName) -> dict[str, Any]:
    """Return the difference of the outputs and the cosine between the gradients."""
    torch.manual_seed(0)
    chosen = experiment("smoke", benchmark, model)
    shape = shape_of_one_step(chosen.benchmark.shape, chosen.benchmark.n_steps)
    network = build_model(chosen.model, shape)
    inputs = torch.rand(4, *shape.space, shape.n_inputs)
    with plain_forms():
        output, slope = _output_and_gradient(network, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        mixed, mixed_slope = _output_and_gradient(network, inputs)
    # What is learned is of size 1; an untrained output may be next to nothing, by chance.
    size = max(output.square().mean().sqrt().item(), SIZE)
    return {
        "difference": (mixed - output).square().mean().sqrt().item() / size,
        "cosine": torch.cosine_similarity(slope, mixed_slope, dim=0).item(),
    }


def _output_and_gradient(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    network.zero_grad(set_to_none=True)
    output = network(inputs).float()
    with torch.autocast("cpu", enabled=False):
        output.square().mean().backward()
    slopes = [p.grad.float().flatten() for p in network.parameters() if p.grad is not None]
    return output.detach(), torch.cat(slopes)


def main() -> int:
    warnings.simplefilter("ignore")
    for model in sys.argv[1:] or get_args(ModelName):
        for benchmark in (default_benchmark(model), "elasticity_p"):
            if not applies(benchmark, model):
                continue
            try:
                found = compared(model, benchmark)
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
            print(json.dumps({"model": model, "benchmark": benchmark, **found}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
