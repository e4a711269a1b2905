"""What models cost, as a table with the paper's figures."""

from collections.abc import Sequence
from math import log
from typing import Any

from lsm_core.reporting.charts import cost_growth
from lsm_core.reporting.document import Block, Picture
from lsm_core.reporting.published_results import published_seconds
from lsm_core.reporting.table import Table

HEADINGS = ("Model", "Size", "Parameters", "GFLOP", "Saved MiB", "Peak MiB", "s/step", "Paper s")


def efficiency_table(costs: Sequence[dict[str, Any]]) -> str:
    """Return costs for a terminal, and how they grow with the number of points.

    The paper's seconds were measured on an RTX 3090; they show the growth, not the machine.
    """
    lines = [HEADINGS, *(_cells(cost) for cost in costs)]
    widths = [max(len(cells[i]) for cells in lines) for i in range(len(HEADINGS))]
    text = [
        "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        for cells in lines
    ]
    return "\n".join([*text, *_growth(costs)])


def efficiency_blocks(costs: Sequence[dict[str, Any]]) -> list[Block]:
    """Return costs as a table and a diagram, and how they grow with the number of points."""
    table = Table(
        headings=HEADINGS,
        rows=tuple(_cells(cost) for cost in costs),
        caption="Cost of one training step on a field of size × size points, one channel, batch 1: "
        "parameters, operations of a forward pass, memory kept for the backward pass, most memory, "
        "time. Paper: its seconds on an RTX 3090, which show the growth, not this machine.",
    )
    measured: dict[str, dict[float, float]] = {}
    for cost in costs:
        measured.setdefault(_name(cost), {})[float(cost["size"])] = float(cost["step_seconds"])
    models = dict.fromkeys(str(cost["model"]) for cost in costs)
    published = {model: values for model in models if (values := published_seconds(model))}
    devices = ", ".join(dict.fromkeys(str(cost["device"]) for cost in costs))
    caption = (
        f"Seconds of a training step against the size of the field on "
        f"{devices}; dashed: the paper's on a graphics processor."
    )
    picture = Picture(cost_growth(measured, published), caption)
    growth = _growth(costs)
    return [*([". ".join(growth) + "."] if growth else []), table, picture]


def _growth(costs: Sequence[dict[str, Any]]) -> list[str]:
    """Return with which power of the points the seconds grow, a sentence a model."""
    text = []
    for name in dict.fromkeys(_name(cost) for cost in costs):
        own = [cost for cost in costs if _name(cost) == name and cost["size"] >= 128]
        if len(own) > 1:
            first, last = own[0], own[-1]
            points = 2 * log(last["size"] / first["size"])
            exponent = log(last["step_seconds"] / first["step_seconds"]) / points
            text.append(
                f"{name}: seconds grow as points^{exponent:.2f} "
                f"from {first['size']} to {last['size']}"
            )
    return text


def _name(cost: dict[str, Any]) -> str:
    return f"{cost['model']} ({cost['form']})"


def _cells(cost: dict[str, Any]) -> tuple[str, ...]:
    known = published_seconds(cost["model"]).get(cost["size"])
    seconds = "–" if known is None else f"{known:.4f}"
    return (
        _name(cost),
        str(cost["size"]),
        f"{cost['n_parameters']:,}",
        f"{cost['forward_flops'] / 1e9:.2f}",
        f"{cost['saved_bytes'] / 2**20:.0f}",
        f"{cost['peak_bytes'] / 2**20:.0f}",
        f"{cost['step_seconds']:.4f}",
        seconds,
    )
