"""What is measured on each problem besides the relative L2 error."""

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.evaluation.evaluate import Breakdown


def breakdown_of(benchmark: Benchmark) -> Breakdown:
    """Return the error's parts: a step of a rollout, a channel, the boundary and the interior."""
    n_channels = benchmark.shape.n_outputs
    kind = "step" if benchmark.n_steps > 1 else "channel"
    has_ends = benchmark.positions in ("nodes", "cell centres")
    return Breakdown(
        channels=tuple(f"{kind}_{number}" for number in range(1, n_channels + 1)),
        boundary_axes=tuple(
            axis for axis, name in enumerate(benchmark.space) if has_ends and name != "time"
        ),
    )
