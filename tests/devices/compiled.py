"""Models compiled by torch beside the same without, forward and backward.

    python -m tests.devices.compiled [MODEL ...]

Of each model one line of JSON: the number of graphs and the largest difference of the output and of
the gradients, relative to the largest value of each. The backend keeps torch's own operators
(`aot_eager`), so that no compiler is needed: it shows that a model can be traced whole, not what a
compiler makes of it. In a process of its own: the checks of shapes that the test run adds to every
function cannot be traced.
"""

import json
import sys
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from lsm_core.experiments.presets import experiment
from lsm_core.layers.forms import plain_forms
from lsm_core.models.catalogue import build_model
from lsm_core.names import BenchmarkName, ModelName
from lsm_core.surrogates.operator import shape_of_one_step
from tests.devices.cases import TRAINED, default_benchmark


def compared(model: ModelName, benchmark: BenchmarkName) -> dict[str, Any]:
    """Return graphs and differences of a model."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    chosen = experiment("smoke", benchmark, model)
    shape = shape_of_one_step(chosen.benchmark.shape, chosen.benchmark.n_steps)
    network = build_model(chosen.model, shape).double()
    inputs = torch.rand(2, *shape.space, shape.n_inputs, dtype=torch.float64)
    with plain_forms():
        expected = output_and_gradients(network, network, inputs)
    found = output_and_gradients(torch.compile(network, backend="aot_eager"), network, inputs)
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "reasons": list(counters["graph_break"])[:3],
        "output": difference(found[:1], expected[:1]),
        "gradients": difference(found[1:], expected[1:]),
    }


def output_and_gradients(function: Any, network: nn.Module, inputs: Tensor) -> list[Tensor]:
    """Return the output and the gradients of its mean square, buffers left as they were."""
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    network.zero_grad(set_to_none=True)
    output = function(inputs)
    output.square().mean().backward()
    for name, buffer in network.named_buffers():
        buffer.copy_(buffers[name])
    gradients = [p.grad.clone() for p in network.parameters() if p.grad is not None]
    return [output.detach(), *gradients]


def difference(found: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest difference of a tensor over its largest value.

    Some gradients vanish, as that of a bias of keys, and what is left of them is rounding: below a
    ten-thousandth of the largest value of all, that is what differences are measured with.
    """
    largest = [tensor.abs().max().item() for tensor in expected]
    least = 1e-4 * max(largest)
    differences = [(a - b).abs().max().item() for a, b in zip(found, expected, strict=True)]
    return max(d / max(size, least) for d, size in zip(differences, largest, strict=True))


def main() -> int:
    warnings.simplefilter("ignore")
    for model in sys.argv[1:] or TRAINED:
        try:
            found = compared(model, default_benchmark(model))
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {str(error)[:1500]}"}
        print(json.dumps({"model": model, **found}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
