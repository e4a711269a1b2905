"""What models cost, as a table with the paper's figures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log
from typing import Any

from lsm_core.reporting.charts import cost_growth
from lsm_core.reporting.comparison import Row
from lsm_core.reporting.document import Block, Picture
from lsm_core.reporting.leaderboard import ranks, shown_rank
from lsm_core.reporting.published_results import (
    published_mean_rank,
    published_memory,
    published_parameters,
    published_seconds,
)
from lsm_core.reporting.ranking import places_within
from lsm_core.reporting.seeds import difference
from lsm_core.reporting.table import Table

HEADINGS = (
    "model",
    "size",
    "rank",
    "s/step",
    "paper s",
    "rank, paper",
    "peak MiB",
    "paper MiB",
    "saved MiB",
    "GFLOP",
)
MOST_LINES = 18
"""More lines than there are colours and dashes cannot be told apart."""

Costs = Sequence[dict[str, Any]]


def efficiency_table(costs: Costs) -> str:
    """Return costs for a terminal, and how they grow with the number of points.

    The paper's seconds were measured on an RTX 3090; they show the growth, not the machine.
    """
    done = finished_costs(costs)
    text = []
    for table in (_cost_table(done), _size_table(done, {})):
        lines = [table.headings, *table.rows]
        widths = [max(len(cells[i]) for cells in lines) for i in range(len(table.headings))]
        text += [
            "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
            for cells in lines
        ]
        text.append("")
    return "\n".join([*text[:-1], *_growth(done)])


def efficiency_blocks(
    costs: Costs, rows_of: Mapping[str, Sequence[Row]] | None = None
) -> list[Block]:
    """Return costs as tables and a diagram for every machine, and how they grow with the points.

    `rows_of` are the main results by preset, for the ranks of the models' errors.
    """
    blocks: list[Block] = [_size_table(costs, rows_of or {})] if costs else []
    for place in dict.fromkeys(_machine(cost) for cost in costs):
        own = [cost for cost in costs if _machine(cost) == place]
        growth = _growth(own)
        caption = (
            f"Cost of one training step on {place}, on a field of size × size points, one channel, "
            "batch 1: time and its rank among the models of that size, most memory, memory kept "
            "for the backward pass, operations of a forward pass. Paper: on an RTX 3090, which "
            "shows the growth, not this machine."
        )
        blocks += [". ".join(growth) + "."] if growth else []
        blocks += [replace(_cost_table(own), caption=caption), _growth_picture(own, place)]
    return blocks


def finished_costs(costs: Costs) -> list[dict[str, Any]]:
    """Return the measurements that have figures."""
    return [cost for cost in costs if "error" not in cost]


def _cost_table(costs: Costs) -> Table:
    ours = places_within({_key(cost): cost["step_seconds"] for cost in costs})
    # LSM is measured in two forms, and is one model in the paper.
    known = {
        (str(cost["size"]), str(cost["model"])): published_seconds(cost["model"]).get(cost["size"])
        for cost in costs
    }
    theirs = places_within(known)
    lines = []
    for cost in costs:
        seconds = known[str(cost["size"]), cost["model"]]
        memory = published_memory(cost["model"]).get(cost["size"])
        lines.append(
            (
                _name(cost),
                str(cost["size"]),
                str(ours[_key(cost)]),
                f"{cost['step_seconds']:.4f}",
                "–" if seconds is None else f"{seconds:.4f}",
                str(theirs.get((str(cost["size"]), cost["model"]), "–")),
                f"{cost['peak_bytes'] / 2**20:.0f}",
                "–" if memory is None else f"{memory:.0f}",
                f"{cost['saved_bytes'] / 2**20:.0f}",
                f"{cost['forward_flops'] / 1e9:.2f}",
            )
        )
    return Table(headings=HEADINGS, rows=tuple(lines))


def _size_table(costs: Costs, rows_of: Mapping[str, Sequence[Row]]) -> Table:
    """Return the parameters of every model, and where its errors stand among the others'."""
    parameters = {_name(cost): (cost["model"], cost["n_parameters"]) for cost in costs}
    ranks_of = {preset: ranks(rows) for preset, rows in rows_of.items() if rows}
    lines = []
    for name, (model, number) in parameters.items():
        published, rank = published_parameters(model), published_mean_rank(model)
        lines.append(
            (
                name,
                f"{number:,}",
                "–" if published is None else f"{published:,.0f}",
                difference(float(number), published),
                *(shown_rank(places, model) for places in ranks_of.values()),
                "–" if rank is None else f"{rank:.1f}",
            )
        )
    own = tuple(f"mean rank, {preset}" for preset in ranks_of)
    return Table(
        headings=("model", "parameters", "paper", "difference", *own, "mean rank, paper"),
        rows=tuple(lines),
        caption="Parameters, and the mean rank of the error over the benchmarks: ours among the "
        "models of each preset's main results, the paper's among the ten of its table.",
    )


def _growth_picture(costs: Costs, place: str) -> Picture:
    measured: dict[str, dict[float, float]] = {}
    for cost in sorted(costs, key=lambda cost: int(cost["size"])):
        measured.setdefault(_name(cost), {})[float(cost["size"])] = float(cost["step_seconds"])
    models = dict.fromkeys(str(cost["model"]) for cost in costs)
    published = {model: values for model in models if (values := published_seconds(model))}
    caption = f"Seconds of a training step against the size of the field on {place}"
    if len(measured) + len(published) > MOST_LINES:
        return Picture(cost_growth(measured, {}), f"{caption}.")
    told = f"{caption}; dashed: the paper's on a graphics processor."
    return Picture(cost_growth(measured, published), told)


def _growth(costs: Costs) -> list[str]:
    """Return with which power of the points the seconds grow, a sentence a model."""
    text = []
    for name in dict.fromkeys(_name(cost) for cost in costs):
        own = [cost for cost in costs if _name(cost) == name and cost["size"] >= 128]
        own.sort(key=lambda cost: int(cost["size"]))
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


def _key(cost: dict[str, Any]) -> tuple[str, str]:
    return str(cost["size"]), _name(cost)


def _machine(cost: dict[str, Any]) -> str:
    machine = cost.get("machine")
    return f"{cost['device']} ({machine})" if machine else str(cost["device"])
