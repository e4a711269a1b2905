"""Estimates of a training step on GPUs that were not at hand, beside the paper's measurement."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lsm_core.evaluation.roofline import GPUS, RTX_3090, Estimate, Work, estimate
from lsm_core.names import ModelName
from lsm_core.reporting.published_results import published_costs
from lsm_core.reporting.tables import Table, shown, table_of

CAPTION = (
    "ESTIMATES on paper, none of them measured: one training step on a field of size x size, one "
    "channel, batch 1, in float32, from counted launches, bytes and operations and the data sheets "
    "of the GPUs (lsm_core/evaluation/roofline.py has the formulas). `bound` is what a step waits "
    "for on the RTX 3090. `paper` is what the paper measured there, with the software of 2023."
)


@dataclass(frozen=True, kw_only=True)
class EstimatedCost:
    """What one training step of a model would cost, by paper."""

    model: ModelName
    form: str
    size: int
    launches: int
    n_bytes: int
    flops: int
    seconds: Mapping[str, float]
    """By the names of the GPUs."""
    bound: str
    """On the RTX 3090."""
    published: float | None
    """The paper's seconds, measured on an RTX 3090."""

    @classmethod
    def of(cls, model: ModelName, form: str, size: int, work: Work) -> "EstimatedCost":
        """Return the estimates for all GPUs."""
        found: dict[str, Estimate] = {gpu.name: estimate(work, gpu) for gpu in GPUS}
        return cls(
            model=model,
            form=form,
            size=size,
            launches=work.n_launches,
            n_bytes=work.n_bytes,
            flops=work.flops,
            seconds={name: each.step_seconds for name, each in found.items()},
            bound=found[RTX_3090.name].bound,
            published=published_costs(model).seconds.get(size),
        )

    def to_plain(self) -> dict[str, Any]:
        """Return all fields as plain data, marked as what they are."""
        return {"estimate": True, **asdict(self)}


def estimate_table(costs: Sequence[EstimatedCost]) -> Table:
    """Return estimates side by side, in milliseconds, and the paper's figure."""
    lines = [
        {
            "model": f"{cost.model} ({cost.form})",
            "size": str(cost.size),
            "launches": str(cost.launches),
            "GB": f"{cost.n_bytes / 1e9:.2f}",
            "GFLOP": f"{cost.flops / 1e9:.1f}",
            **{f"~{name}, ms": f"{1000 * s:.1f}" for name, s in cost.seconds.items()},
            "bound": cost.bound,
            "paper, 3090, ms": shown(cost.published and 1000 * cost.published, ".1f"),
        }
        for cost in costs
    ]
    return table_of(lines, CAPTION)
