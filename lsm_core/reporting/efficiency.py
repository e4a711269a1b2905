"""What models cost, beside the paper's figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import log
from typing import Any

from lsm_core.evaluation.cost import Cost as Figures
from lsm_core.names import ModelName
from lsm_core.reporting.charts import MOST_LINES, against_size, cost_scatters
from lsm_core.reporting.comparison import OverSeeds, Row, difference, places_within, ranks
from lsm_core.reporting.document import Block, Picture
from lsm_core.reporting.published_results import published_costs
from lsm_core.reporting.tables import Table, shown, shown_rank, table_of


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What was to be measured and where; measurements that agree in all of it are the same."""

    model: ModelName
    form: str
    """LSM has two, that of the paper and that of the released code."""
    size: int
    """Points along each side of the field."""
    device: str = "cpu"
    machine: str = ""
    code: str = ""
    """The hash of the sources; older measurements do not say."""

    @property
    def row(self) -> str:
        """Return what its row of a table is called."""
        return f"{self.model} ({self.form})"

    @property
    def name(self) -> str:
        """Return what was measured, in words."""
        return f"{self.row} at {self.size} x {self.size}"

    @property
    def place(self) -> str:
        """Return where it was measured."""
        return f"{self.device} ({self.machine})" if self.machine else self.device

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what tells a measurement from all others."""
        return tuple(getattr(self, field.name) for field in fields(Measurement))

    def to_plain(self) -> dict[str, Any]:
        """Return all fields as plain data."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Cost(Figures, Measurement):
    """What one training step of a model costs on a field with one channel, batch 1."""

    measured: str = ""
    """When; older measurements do not say."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Cost":
        """Return the cost that `to_plain` wrote, or an older version."""
        return cls(
            **{field.name: plain[field.name] for field in fields(cls) if field.name in plain}
        )


def efficiency_table(costs: Sequence[Cost]) -> str:
    """Return costs for a terminal, and how they grow with the number of points.

    The paper's seconds were measured on an RTX 3090; they show the growth, not the machine.
    """
    sizes = replace(_size_table(costs, {}), caption="")
    return "\n".join([_cost_table(costs).text(), "", sizes.text(), *_growth(costs)])


def efficiency_blocks(
    costs: Sequence[Cost], rows_of: Mapping[str, Sequence[Row]] | None = None
) -> list[Block]:
    """Return costs as tables and a diagram for every machine, and how they grow with the points.

    `rows_of` are the main results by preset, for the ranks of the models' errors and their errors
    against the time that they train.
    """
    rows_of = rows_of or {}
    blocks: list[Block] = [_size_table(costs, rows_of)] if costs else []
    for place in dict.fromkeys(cost.place for cost in costs):
        own = [cost for cost in costs if cost.place == place]
        growth = _growth(own)
        caption = (
            f"Cost of one training step on {place}, on a field of size × size points, one channel, "
            "batch 1: time and its rank among the models of that size, most memory, memory kept "
            "for the backward pass, operations of a forward pass. Paper: on an RTX 3090, which "
            "shows the growth, not this machine."
        )
        blocks += [". ".join(growth) + "."] if growth else []
        blocks += [replace(_cost_table(own), caption=caption), _growth_picture(own, place)]
    for preset, rows in rows_of.items():
        blocks += scatter_pictures(rows, preset)
    return blocks


def scatter_pictures(rows: Sequence[Row], preset: str) -> list[Picture]:
    """Return error against time at a preset, for all problems with two models or more at once."""
    found = {}
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        own = {
            row.model: (row.seconds_per_epoch, row.errors.mean, float(row.n_parameters))
            for row in rows
            if row.benchmark == benchmark and row.errors.values
        }
        if len(own) > 1:
            found[benchmark] = own
    if not found:
        return []
    caption = (
        f"{', '.join(found)}, preset {preset}: test error against seconds an epoch; the area of "
        "a disc grows with the number of parameters. Below and to the left is better."
    )
    return [Picture(cost_scatters(found), caption)]


def _cost_table(costs: Sequence[Cost]) -> Table:
    ours = places_within({(str(cost.size), cost.row): cost.step_seconds for cost in costs})
    # LSM is measured in two forms, and is one model in the paper.
    known = {
        (str(cost.size), str(cost.model)): published_costs(cost.model).seconds.get(cost.size)
        for cost in costs
    }
    theirs = places_within(known)
    lines = []
    for cost in costs:
        size, memory = str(cost.size), published_costs(cost.model).memory.get(cost.size)
        seconds = known[size, cost.model]
        lines.append(
            {
                "model": cost.row,
                "size": size,
                "rank": str(ours[size, cost.row]),
                "s/step": f"{cost.step_seconds:.4f}",
                "paper s": shown(seconds, ".4f"),
                "rank, paper": str(theirs.get((size, cost.model), "–")),
                "peak MiB": f"{cost.peak_bytes / 2**20:.0f}",
                "paper MiB": shown(memory, ".0f"),
                "saved MiB": f"{cost.saved_bytes / 2**20:.0f}",
                "GFLOP": f"{cost.forward_flops / 1e9:.2f}",
            }
        )
    return table_of(lines)


def _size_table(costs: Iterable[Cost], rows_of: Mapping[str, Sequence[Row]]) -> Table:
    """Return the parameters of every model, and where its errors stand among the others'."""
    ranks_of = {preset: ranks(rows) for preset, rows in rows_of.items() if rows}
    lines = []
    for name, cost in {cost.row: cost for cost in costs}.items():
        published = published_costs(cost.model)
        lines.append(
            {
                "model": name,
                "parameters": f"{cost.n_parameters:,}",
                "paper": shown(published.parameters, ",.0f"),
                "difference": difference(float(cost.n_parameters), published.parameters),
                **{f"mean rank, {p}": shown_rank(ours, cost.model) for p, ours in ranks_of.items()},
                "mean rank, paper": shown(published.mean_rank, ".1f"),
            }
        )
    caption = (
        "Parameters, and the mean rank of the error over the benchmarks: ours among the models of "
        "each preset's main results, the paper's among the ten of its table."
    )
    return table_of(lines, caption)


def _growth_picture(costs: Sequence[Cost], place: str) -> Picture:
    measured: dict[str, dict[float, OverSeeds]] = {}
    for cost in costs:
        measured.setdefault(cost.row, {})[float(cost.size)] = OverSeeds((cost.step_seconds,))
    models = dict.fromkeys(cost.model for cost in costs)
    known = {str(model): published_costs(model).seconds for model in models}
    published = {model: seconds for model, seconds in known.items() if seconds}
    caption = f"Seconds of a training step against the size of the field on {place}"
    if len(measured) + len(published) > MOST_LINES:
        published, caption = {}, f"{caption}."
    else:
        caption += "; dashed: the paper's on a GPU."
    drawn = against_size(measured, published, "points along each side", "training step [s]")
    return Picture(drawn, caption)


def _growth(costs: Sequence[Cost]) -> list[str]:
    """Return with which power of the points the seconds grow, a sentence a model."""
    text = []
    for name in dict.fromkeys(cost.row for cost in costs):
        own = [cost for cost in costs if cost.row == name and cost.size >= 128]
        if len(own) > 1:
            first, *_, last = sorted(own, key=lambda cost: cost.size)
            points = 2 * log(last.size / first.size)
            exponent = log(last.step_seconds / first.step_seconds) / points
            text.append(
                f"{name}: seconds grow as points^{exponent:.2f} from {first.size} to {last.size}"
            )
    return text
