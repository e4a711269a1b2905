"""What a report shows of the studies: tables beside the paper's, and pictures."""

import re
from collections.abc import Mapping, Sequence
from statistics import mean

from lsm_core.reporting import charts
from lsm_core.reporting.charts import MOST_LINES, training_curves
from lsm_core.reporting.comparison import (
    OverSeeds,
    difference,
    error_curves,
    error_over_seeds,
    finished,
    grouped,
)
from lsm_core.reporting.document import Block, Picture
from lsm_core.reporting.published_results import (
    published_ablation,
    published_deviation,
    published_for,
    published_resolutions,
    published_sweep,
)
from lsm_core.reporting.tables import (
    Table,
    beside_paper,
    compared_table,
    shown,
    table_of,
    trained,
)
from lsm_core.result import Outcome


def setting_table(results: Sequence[Outcome], caption: str = "") -> Table:
    """Return settings and their errors, mean and deviation over the seeds."""
    lines: list[tuple[str, ...]] = []
    costs = ("parameters", "updates", "samples seen", "TFLOP", "s/epoch")
    groups = grouped(results, lambda outcome: (outcome.benchmark, _setting(outcome)))
    for (benchmark, setting), some in groups.items():
        done = finished(some)
        if not done:
            lines.append((benchmark, setting, "failed", "failed", *[""] * len(costs)))
            continue
        validation = OverSeeds(tuple(r.validation[r.ERROR] for r in done if r.validation))
        errors = (validation.text() if validation.values else "", error_over_seeds(done).text())
        seconds = mean(result.seconds_per_epoch for result in done)
        training = trained(done[0].updates, done[0].samples_seen, done[0].flops)
        took = (f"{done[0].parameters:,}", *training, f"{seconds:.2f}")
        lines.append((benchmark, setting, *errors, *took))
    return Table(
        headings=("benchmark", "setting", "validation", "test", *costs),
        rows=tuple(lines),
        n_names=2,
        caption=caption,
    )


def plain_blocks(results: Sequence[Outcome]) -> list[Block]:
    """Return every setting with its errors, and how they were trained."""
    caption = "Error on validation and test samples, mean and deviation over the seeds."
    blocks: list[Block] = [setting_table(results, caption)]
    for benchmark, some in grouped(finished(results), _benchmark).items():
        runs = {
            name: [result.history for result in own]
            for name, own in grouped(some, _setting).items()
        }
        if len(runs) <= MOST_LINES:
            caption = (
                f"{benchmark}: error on validation samples while training; of several seeds the "
                "mean, and a band from the lowest to the highest."
            )
            blocks.append(Picture(training_curves(runs), caption))
    return blocks


def budget_blocks(results: Sequence[Outcome]) -> list[Block]:
    """Return the error that each model has after how many seconds of training."""
    blocks: list[Block] = []
    for benchmark, some in grouped(finished(results), _benchmark).items():
        curves: dict[str, dict[float, OverSeeds]] = {}
        for (model, _), own in grouped(some, lambda one: (one.model, one.epochs)).items():
            seconds = mean(result.epochs * result.seconds_per_epoch for result in own)
            curves.setdefault(model, {})[seconds] = error_over_seeds(own)
        caption = (
            f"{benchmark}: test error against the seconds of training. Each mark is a training of "
            "its own, from its first update to the end of its schedule."
        )
        blocks.append(Picture(charts.against_seconds(curves), caption))
    caption = "Error on validation and test samples, mean and deviation over the seeds."
    return [*blocks, setting_table(results, caption)]


def ablation_blocks(results: Sequence[Outcome]) -> list[Block]:
    """Return the variants of LSM beside the paper's, as a table and a diagram a benchmark."""
    blocks: list[Block] = []
    for benchmark, some in grouped(results, _benchmark).items():
        variants = grouped(some, _setting)
        measured = {name: error_over_seeds(own) for name, own in variants.items()}
        published = {name: published_ablation(benchmark, name) for name in variants}
        blocks.append(_ablation_table(benchmark, variants, measured, published))
        done = {name: errors for name, errors in measured.items() if errors.values}
        if "lsm" in done and len(done) > 1:
            caption = (
                f"{benchmark}: error of each variant over that of the whole LSM, which is the "
                "line at 1; to the right of it the variant is worse. Bars are the deviation over "
                "the seeds."
            )
            blocks.append(Picture(charts.variants(done, published, "lsm"), caption))
    return blocks


def _ablation_table(
    benchmark: str,
    variants: Mapping[str, Sequence[Outcome]],
    measured: Mapping[str, OverSeeds],
    published: Mapping[str, float | None],
) -> Table:
    whole, published_whole = measured.get("lsm"), published.get("lsm")
    lines = []
    for name, some in variants.items():
        errors, known, done = measured[name], published[name], finished(some)
        compared = difference(errors.mean, whole.mean) if whole and errors.values else "–"
        paper = difference(known, published_whole) if known and published_whole else "–"
        lines.append(
            {
                "variant": name,
                **beside_paper(errors, known),
                "to whole": compared,
                "to whole, paper": paper,
                "parameters": f"{done[0].parameters:,}" if done else "–",
            }
        )
    caption = (
        f"{benchmark}: test error of LSM with parts replaced or left out, how far it is above the "
        "published one, and how far each is above the whole model."
    )
    return table_of(lines, caption)


def sweep_blocks(results: Sequence[Outcome]) -> list[Block]:
    """Return errors against the number of tokens, basis operators and scales."""
    swept = [result for result in results if re.match(r"\d+ .", result.setting)]
    if not swept:
        return plain_blocks(results)
    curves = error_curves(swept, _swept)
    published = {name: published_sweep(name) for name in curves}
    lines = []
    for name, curve in curves.items():
        for value, errors in sorted(curve.items()):
            compared = beside_paper(errors, published[name].get(value))
            lines.append({"setting": name, "value": f"{value:g}", **compared})
    benchmark = results[0].benchmark
    table = table_of(lines, f"{benchmark}: test error with one setting of LSM changed at a time.")
    if not finished(swept):
        return [table]
    figure = charts.sweeps(curves, published)
    caption = (
        f"{benchmark}: test error against a setting, each line divided by its own mean so that "
        "the sensitivity can be compared; bars are the deviation over the seeds."
    )
    return [table, Picture(figure, caption)]


def resolution_blocks(results: Sequence[Outcome]) -> list[Block]:
    """Return the error of each model against the resolution, the paper's dashed."""
    benchmark = results[0].benchmark
    measured = error_curves(results, lambda one: (one.model, float(one.resolution[0])))
    published = {model: published_resolutions(benchmark, model) for model in measured}
    sizes = sorted({size for curve in measured.values() for size in curve})

    def text(model: str, size: float) -> str:
        errors, known = measured[model].get(size), published[model].get(size)
        own = "–" if errors is None else errors.text()
        return own if known is None else f"{own} ({known:.4g})"

    table = Table(
        headings=("model", *(f"{size:g}" for size in sizes)),
        rows=tuple((model, *(text(model, size) for size in sizes)) for model in measured),
        caption=f"{benchmark}: test error by points along an axis, published figures in brackets.",
    )
    by_size = {
        (f"{size:g}", model): (curve[size], published[model].get(size))
        for size in sizes
        for model, curve in measured.items()
        if size in curve
    }
    caption = (
        f"{benchmark}: mean and deviation over the seeds at each resolution, how far the mean is "
        "above the published figure, and ranks among the models here."
    )
    ranked = compared_table(by_size, ("points", "model"), caption)
    figure = charts.against_size(measured, published, "points along an axis")
    caption = (
        f"{benchmark}: test error against the resolution. Dashed: the paper's, "
        "with its data and training. Bars are the deviation over the seeds."
    )
    return [table, ranked, Picture(figure, caption)]


def stability_blocks(results: Sequence[Outcome]) -> list[Block]:
    """Return how far the errors of several seeds lie apart."""
    lines = []
    groups = grouped(results, lambda one: (one.benchmark, one.model))
    for (benchmark, model), some in groups.items():
        errors, known = error_over_seeds(some), published_for(some[0])
        deviation = published_deviation(benchmark) if model == "lsm" else None
        values, several = errors.values, len(errors.values) > 1
        lines.append(
            {
                "benchmark": benchmark,
                "model": model,
                "seeds": str(len(values)),
                "mean": f"{errors.mean:.4f}" if values else "failed",
                "paper": shown(known),
                "difference": beside_paper(errors, known)["difference"],
                "deviation": f"{errors.deviation:.4f}" if several else "–",
                "deviation, paper": shown(deviation),
                "of mean": f"{errors.deviation / errors.mean:.1%}" if several else "–",
                "range": f"{min(values):.4f} to {max(values):.4f}" if values else "–",
            }
        )
    caption = (
        "Test errors over the seeds, and how far the mean is above the published figure. "
        "Deviation, paper: within what its five runs of LSM deviate."
    )
    blocks: list[Block] = [table_of(lines, caption, n_names=2)]
    for benchmark, done in grouped(finished(results), _benchmark).items():
        runs = {
            model: [result.history for result in own]
            for model, own in grouped(done, lambda one: one.model).items()
        }
        caption = (
            f"{benchmark}: error on validation samples while training; lines are the "
            "mean of the seeds, bands reach from the lowest to the highest."
        )
        blocks.append(Picture(training_curves(runs), caption))
    return blocks


def _benchmark(outcome: Outcome) -> str:
    return outcome.benchmark


def _setting(outcome: Outcome) -> str:
    return outcome.setting or outcome.model


def _swept(outcome: Outcome) -> tuple[str, float]:
    """Return what a setting like `4 tokens` changes, and its number."""
    number, name = outcome.setting.split(" ", 1)
    return name, float(number)
