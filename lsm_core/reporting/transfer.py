"""Fine-tuning against training from scratch, on parts of the data."""

from collections.abc import Sequence

from lsm_core.reporting.charts import transfer_bars
from lsm_core.reporting.document import Block, Picture
from lsm_core.reporting.published_results import published_transfer
from lsm_core.reporting.ranking import compared_table, shown
from lsm_core.reporting.seeds import OverSeeds, Result, error_over_seeds, finished, grouped
from lsm_core.reporting.table import Table

Curves = dict[str, dict[float, OverSeeds]]


def transfer_blocks(results: Sequence[Result]) -> list[Block]:
    """Return errors of both ways at every part of the data, and which of them is better.

    A study that was cut off may have one of the ways only.
    """
    # The runs that others start from are of another problem and have no setting.
    targets = {r["benchmark"] for r in results if r.get("source") or r.get("setting")}
    results = [result for result in results if result["benchmark"] in targets]
    scratch, tuned = transfer_curves(results)
    published = {model: published_transfer(model) for model in scratch}
    lines = []
    for model in scratch:
        for part in sorted({*scratch[model], *tuned[model]}):
            errors, other = scratch[model].get(part), tuned[model].get(part)
            known = tuple(way.get(part) for way in published[model])
            lines.append(
                (
                    model,
                    f"{part:.0%}",
                    errors.text() if errors else "–",
                    other.text() if other else "–",
                    _gain_of(errors, other),
                    *(shown(value) for value in known),
                    "–" if None in known else _gain(*known),  # type: ignore[arg-type]
                )
            )
    table = Table(
        headings=(
            "model",
            "data",
            "from scratch",
            "fine-tuned",
            "gain",
            "scratch, paper",
            "tuned, paper",
            "gain, paper",
        ),
        rows=tuple(lines),
        caption="Test error on airfoil, trained on the first part of its samples: from random "
        "weights and from those of a model of pipes; mean and deviation over the seeds.",
    )
    caption = (
        "Test error on airfoil from scratch and fine-tuned from pipe, by the part of the training "
        "samples; bars are the deviation over the seeds, diamonds the paper's figures."
    )
    verdicts = [_verdict(model, results) for model in scratch]
    blocks: list[Block] = [*verdicts, table, _ranked(scratch, tuned)]
    if finished(results):
        bars = transfer_bars(_finished(scratch), _finished(tuned), published)
        blocks.append(Picture(bars, caption))
    return blocks


def _ranked(scratch: Curves, tuned: Curves) -> Table:
    """Return the models side by side, for every part of the data and both ways."""
    measured: dict[tuple[str, str], OverSeeds] = {}
    published: dict[tuple[str, str], float | None] = {}
    ways = {"from scratch": scratch, "fine-tuned": tuned}
    curves_of_all = (*scratch.values(), *tuned.values())
    for part in sorted({part for curve in curves_of_all for part in curve}):
        for number, (way, curves) in enumerate(ways.items()):
            for model, curve in curves.items():
                if part in curve:
                    key = f"{part:.0%}, {way}", model
                    measured[key] = curve[part]
                    published[key] = published_transfer(model)[number].get(part)
    caption = (
        "Both ways of training at every part of the data: how far the mean is above the published "
        "figure, and ranks among the models here."
    )
    return compared_table(measured, published, ("data", "model"), caption)


def transfer_curves(results: Sequence[Result]) -> tuple[Curves, Curves]:
    """Return errors by model and part of the data, from scratch and fine-tuned.

    Both have all models, with no part where a model was not trained in that way.
    """
    models = dict.fromkeys(str(result["model"]) for result in results)
    scratch: Curves = {model: {} for model in models}
    tuned: Curves = {model: {} for model in models}
    for (model, part, is_tuned), some in grouped(results, _kind).items():
        (tuned if is_tuned else scratch)[model][part] = error_over_seeds(some)
    return scratch, tuned


def _verdict(model: str, results: Sequence[Result]) -> str:
    """Return whether fine-tuning is better with the least data, in a sentence."""
    own = [result for result in finished(results) if result["model"] == model]
    part = min((_kind(result)[1] for result in own), default=1.0)
    by_seed: dict[bool, dict[int, float]] = {False: {}, True: {}}
    for result in own:
        _, fraction, is_tuned = _kind(result)
        if fraction == part:
            by_seed[is_tuned][result["seed"]] = result["test"]["rel_l2"]
    seeds = sorted(by_seed[False].keys() & by_seed[True].keys())
    if not seeds:
        return f"For {model} there is nothing to compare at {part:.0%} of the data."
    scratch, tuned = (
        OverSeeds(tuple(by_seed[way][seed] for seed in seeds)) for way in (False, True)
    )
    n_better = sum(t < s for s, t in zip(scratch.values, tuned.values, strict=True))
    beats = "beats" if tuned.mean < scratch.mean else "does not beat"
    count = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return (
        f"At {part:.0%} of the data, fine-tuning {model} {beats} training from scratch: "
        f"{tuned.text()} against {scratch.text()} over {count} "
        f"({_gain(scratch.mean, tuned.mean)}; better in {n_better} of {len(seeds)})."
    )


def _kind(result: Result) -> tuple[str, float, bool]:
    return str(result["model"]), float(result.get("fraction", 1.0)), bool(result.get("source"))


def _gain(scratch: float, tuned: float) -> str:
    """Return by how much of the error fine-tuning is better, as the paper counts it."""
    return f"{1 - tuned / scratch:+.1%}"


def _gain_of(scratch: OverSeeds | None, tuned: OverSeeds | None) -> str:
    if not scratch or not tuned or not scratch.values or not tuned.values:
        return "–"
    return _gain(scratch.mean, tuned.mean)


def _finished(curves: Curves) -> Curves:
    return {
        model: {part: errors for part, errors in curve.items() if errors.values}
        for model, curve in curves.items()
    }
