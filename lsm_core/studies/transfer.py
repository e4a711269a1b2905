"""Fine-tuning against training from scratch, on parts of the data."""

from collections.abc import Sequence
from math import isfinite

from lsm_core.reporting.charts import transfer_bars
from lsm_core.reporting.comparison import OverSeeds, Some, error_curves, finished
from lsm_core.reporting.document import Block, Picture
from lsm_core.reporting.published_results import published_transfer
from lsm_core.reporting.tables import Table, compared_table, shown, table_of
from lsm_core.result import Outcome

Curves = dict[str, dict[float, OverSeeds]]


def transfer_blocks(results: Sequence[Outcome]) -> list[Block]:
    """Return errors of both ways at every part of the data, and which of them is better.

    A study that was cut off may have one of the ways only.
    """
    # The runs that others start from are of another problem and have no setting.
    targets = {r.benchmark for r in results if r.source or r.setting}
    results = [result for result in results if result.benchmark in targets]
    scratch, tuned = transfer_curves(results)
    published = {model: published_transfer(model) for model in scratch}
    lines = []
    for model in scratch:
        for part in sorted({*scratch[model], *tuned[model]}):
            errors, other = scratch[model].get(part), tuned[model].get(part)
            known, known_tuned = (way.get(part) for way in published[model])
            lines.append(
                {
                    "model": model,
                    "data": f"{part:.0%}",
                    "from scratch": errors.text() if errors else "–",
                    "fine-tuned": other.text() if other else "–",
                    "gain": _gain(errors.mean if errors else None, other.mean if other else None),
                    "scratch, paper": shown(known),
                    "tuned, paper": shown(known_tuned),
                    "gain, paper": _gain(known, known_tuned),
                }
            )
    caption = (
        "Test error on airfoil, trained on the first part of its samples: from random weights and "
        "from those of a model of pipes; mean and deviation over the seeds."
    )
    table = table_of(lines, caption)
    caption = (
        "Test error on airfoil from scratch and fine-tuned from pipe, by the part of the training "
        "samples; bars are the deviation over the seeds, diamonds the paper's figures."
    )
    verdicts = [_verdict(model, results) for model in scratch]
    blocks: list[Block] = [*verdicts, table, _ranked(scratch, tuned)]
    if finished(results):
        bars = transfer_bars(scratch, tuned, published)
        blocks.append(Picture(bars, caption))
    return blocks


def _ranked(scratch: Curves, tuned: Curves) -> Table:
    """Return the models side by side, for every part of the data and both ways."""
    pairs: dict[tuple[str, str], tuple[OverSeeds, float | None]] = {}
    ways = {"from scratch": scratch, "fine-tuned": tuned}
    curves_of_all = (*scratch.values(), *tuned.values())
    for part in sorted({part for curve in curves_of_all for part in curve}):
        for number, (way, curves) in enumerate(ways.items()):
            for model, curve in curves.items():
                if part in curve:
                    known = published_transfer(model)[number].get(part)
                    pairs[f"{part:.0%}, {way}", model] = curve[part], known
    caption = (
        "Both ways of training at every part of the data: how far the mean is above the published "
        "figure, and ranks among the models here."
    )
    return compared_table(pairs, ("data", "model"), caption)


def transfer_curves(results: Sequence[Outcome]) -> tuple[Curves, Curves]:
    """Return errors by model and part of the data, from scratch and fine-tuned.

    Both have all models, with no part where a model was not trained in that way.
    """
    models = dict.fromkeys(result.model for result in results)
    scratch, tuned = (
        error_curves(_in_one_way(results, is_tuned), lambda one: (one.model, one.fraction))
        for is_tuned in (False, True)
    )
    none: Curves = {model: {} for model in models}
    return none | scratch, none | tuned


def _verdict(model: str, results: Sequence[Outcome]) -> str:
    """Return whether fine-tuning is better with the least data, in a sentence."""
    own = [result for result in finished(results) if result.model == model]
    part = min((result.fraction for result in own), default=1.0)
    least = [result for result in own if result.fraction == part]
    ways = [
        {result.seed: result.error for result in _in_one_way(least, is_tuned)}
        for is_tuned in (False, True)
    ]
    seeds = sorted(ways[0].keys() & ways[1].keys())
    if not seeds:
        return f"For {model} there is nothing to compare at {part:.0%} of the data."
    scratch, tuned = (OverSeeds(tuple(way[seed] for seed in seeds)) for way in ways)
    n_better = sum(t < s for s, t in zip(scratch.values, tuned.values, strict=True))
    beats = "beats" if tuned.mean < scratch.mean else "does not beat"
    count = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return (
        f"At {part:.0%} of the data, fine-tuning {model} {beats} training from scratch: "
        f"{tuned.text()} against {scratch.text()} over {count} "
        f"({_gain(scratch.mean, tuned.mean)}; better in {n_better} of {len(seeds)})."
    )


def _in_one_way(results: Sequence[Some], is_tuned: bool) -> list[Some]:
    return [result for result in results if bool(result.source) == is_tuned]


def _gain(scratch: float | None, tuned: float | None) -> str:
    """Return by how much of the error fine-tuning is better, as the paper counts it.

    A dash where one of the two is not known or failed.
    """
    if scratch is None or tuned is None or not isfinite(scratch + tuned):
        return "–"
    return f"{1 - tuned / scratch:+.1%}"
