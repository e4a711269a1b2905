"""What models cost, as a table with the paper's figures."""

from collections.abc import Sequence
from math import log
from typing import Any

from lsm_core.reporting.published_results import published_tables

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
    return "\n".join(text)


def _name(cost: dict[str, Any]) -> str:
    return f"{cost['model']} ({cost['form']})"


def _cells(cost: dict[str, Any]) -> tuple[str, ...]:
    table = published_tables()["efficiency"]
    published = table.get(cost["model"])
    seconds = "–"
    if published and cost["size"] in table["sizes"]:
        seconds = f"{published['s_per_iter'][table['sizes'].index(cost['size'])]:.4f}"
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
