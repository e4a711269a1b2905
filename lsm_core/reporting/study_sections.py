"""The studies of the paper beside its main table, a section each."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lsm_core.reporting import charts
from lsm_core.reporting.document import Block, Picture
from lsm_core.reporting.figures import training_curves
from lsm_core.reporting.protocol import protocol_sentence
from lsm_core.reporting.published_results import (
    published_ablation,
    published_deviation,
    published_for,
    published_resolutions,
    published_sweep,
)
from lsm_core.reporting.ranking import compared_table, shown
from lsm_core.reporting.seeds import (
    OverSeeds,
    Result,
    difference,
    error_over_seeds,
    finished,
    grouped,
)
from lsm_core.reporting.study import setting_table
from lsm_core.reporting.table import Table
from lsm_core.reporting.transfer import transfer_blocks

MOST_CURVES = 18
"""More lines than there are colours and dashes cannot be told apart."""


def study_blocks(study: str, results: Sequence[Result]) -> list[Block]:
    """Return what a report says of a study; of one it does not know, a table and curves."""
    for beginning, blocks in KINDS.items():
        if study.startswith(beginning):
            return [*blocks(results), protocol_sentence(results)]
    return [*plain_blocks(results), protocol_sentence(results)]


def plain_blocks(results: Sequence[Result]) -> list[Block]:
    """Return every setting with its errors, and how they were trained."""
    caption = "Error on validation and test samples, mean and deviation over the seeds."
    blocks: list[Block] = [replace(setting_table(results), caption=caption)]
    for benchmark, some in grouped(finished(results), _benchmark).items():
        runs = {name: own[0]["history"] for name, own in grouped(some, _setting).items()}
        if len(runs) <= MOST_CURVES:
            caption = f"{benchmark}: error on validation samples while training."
            blocks.append(Picture(training_curves(runs), caption))
    return blocks


def ablation_blocks(results: Sequence[Result]) -> list[Block]:
    """Return the variants of LSM beside the paper's, as a table and a diagram a benchmark."""
    blocks: list[Block] = []
    for benchmark, some in grouped(results, _benchmark).items():
        variants = grouped(some, _setting)
        measured = {name: error_over_seeds(own) for name, own in variants.items()}
        published = {
            name: error
            for name in variants
            if (error := published_ablation(benchmark, name)) is not None
        }
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
    variants: Mapping[str, Sequence[Result]],
    measured: Mapping[str, OverSeeds],
    published: Mapping[str, float],
) -> Table:
    whole, published_whole = measured.get("lsm"), published.get("lsm")
    lines = []
    for name, some in variants.items():
        errors, known, done = measured[name], published.get(name), finished(some)
        compared = difference(errors.mean, whole.mean) if whole and errors.values else "–"
        paper = difference(known, published_whole) if known and published_whole else "–"
        lines.append(
            (
                name,
                errors.text(),
                shown(known),
                difference(errors.mean, known),
                compared,
                paper,
                f"{done[0]['parameters']:,}" if done else "–",
            )
        )
    return Table(
        headings=(
            "variant",
            "error",
            "paper",
            "difference",
            "to whole",
            "to whole, paper",
            "parameters",
        ),
        rows=tuple(lines),
        caption=f"{benchmark}: test error of LSM with parts replaced or left out, how far it is "
        "above the published one, and how far each is above the whole model.",
    )


def sweep_blocks(results: Sequence[Result]) -> list[Block]:
    """Return errors against the number of tokens, basis operators and scales."""
    curves: dict[str, dict[float, OverSeeds]] = {}
    for name, some in grouped(results, _setting).items():
        match = re.fullmatch(r"(\d+) (.+)", name)
        if match:
            curves.setdefault(match[2], {})[float(match[1])] = error_over_seeds(some)
    if not curves:
        return plain_blocks(results)
    published = {name: published_sweep(name) for name in curves}
    lines = []
    for name, curve in curves.items():
        for value, errors in sorted(curve.items()):
            known = published[name].get(value)
            compared = shown(known), difference(errors.mean, known)
            lines.append((name, f"{value:g}", errors.text(), *compared))
    benchmark = str(results[0]["benchmark"])
    caption = f"{benchmark}: test error with one setting of LSM changed at a time."
    table = Table(
        headings=("setting", "value", "error", "paper", "difference"),
        rows=tuple(lines),
        caption=caption,
    )
    axes = {
        f"number of {name}": done
        for name, curve in curves.items()
        if (done := {value: errors for value, errors in curve.items() if errors.values})
    }
    if not axes:
        return [table]
    known_axes = {f"number of {name}": values for name, values in published.items()}
    figure = charts.sweeps(axes, known_axes)
    told = (
        f"{benchmark}: test error against a setting, each line divided by its own mean so that "
        "the sensitivity can be compared; bars are the deviation over the seeds."
    )
    return [table, Picture(figure, told)]


def resolution_blocks(results: Sequence[Result]) -> list[Block]:
    """Return the error of each model against the resolution, the paper's dashed."""
    benchmark = str(results[0]["benchmark"])
    measured: dict[str, dict[float, OverSeeds]] = {}
    for (model, size), some in grouped(results, _model_and_size).items():
        measured.setdefault(model, {})[size] = error_over_seeds(some)
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
        (f"{size:g}", model): curve[size]
        for size in sizes
        for model, curve in measured.items()
        if size in curve
    }
    known_by_size = {
        (f"{size:g}", model): known
        for model, curve in published.items()
        for size, known in curve.items()
    }
    told = (
        f"{benchmark}: mean and deviation over the seeds at each resolution, how far the mean is "
        "above the published figure, and ranks among the models here."
    )
    ranked = compared_table(by_size, known_by_size, ("points", "model"), told)
    drawn = {
        model: {size: errors for size, errors in curve.items() if errors.values}
        for model, curve in measured.items()
    }
    figure = charts.error_against_size(drawn, published, "points along an axis")
    caption = (
        f"{benchmark}: test error against the resolution. Dashed: the paper's, "
        "with its data and training. Bars are the deviation over the seeds."
    )
    return [table, ranked, Picture(figure, caption)]


def stability_blocks(results: Sequence[Result]) -> list[Block]:
    """Return how far the errors of several seeds lie apart."""
    lines = []
    for (benchmark, model), some in grouped(results, _benchmark_and_model).items():
        errors = error_over_seeds(some)
        known = published_for(some[0])
        deviation = published_deviation(benchmark) if model == "lsm" else None
        part = errors.deviation / errors.mean if errors.values else 0.0
        lines.append(
            (
                benchmark,
                model,
                str(len(errors.values)),
                f"{errors.mean:.4f}" if errors.values else "failed",
                shown(known),
                difference(errors.mean, known),
                f"{errors.deviation:.4f}" if len(errors.values) > 1 else "–",
                shown(deviation),
                f"{part:.1%}" if len(errors.values) > 1 else "–",
                f"{min(errors.values):.4f} to {max(errors.values):.4f}" if errors.values else "–",
            )
        )
    table = Table(
        headings=(
            "benchmark",
            "model",
            "seeds",
            "mean",
            "paper",
            "difference",
            "deviation",
            "deviation, paper",
            "of mean",
            "range",
        ),
        rows=tuple(lines),
        n_names=2,
        caption="Test errors over the seeds, and how far the mean is above the published figure. "
        "Deviation, paper: within what its five runs of LSM deviate.",
    )
    blocks: list[Block] = [table]
    for benchmark, some in grouped(finished(results), _benchmark).items():
        runs = {
            model: [
                result["history"]
                for result in own
                if len(result["history"]) == len(own[0]["history"])
            ]
            for model, own in grouped(some, _model).items()
        }
        caption = (
            f"{benchmark}: error on validation samples while training; lines are the "
            "mean of the seeds, bands reach from the lowest to the highest."
        )
        blocks.append(Picture(charts.curves_over_seeds(runs), caption))
    return blocks


KINDS: dict[str, Callable[[Sequence[Result]], list[Block]]] = {
    "ablations": ablation_blocks,
    "hyperparameters": sweep_blocks,
    "resolutions": resolution_blocks,
    "transfer": transfer_blocks,
    "stability": stability_blocks,
}
"""How a study is shown, by how its name begins."""


def _benchmark(result: Result) -> str:
    return str(result["benchmark"])


def _model(result: Result) -> str:
    return str(result["model"])


def _setting(result: Result) -> str:
    return str(result.get("setting") or result["model"])


def _model_and_size(result: Result) -> tuple[str, float]:
    return str(result["model"]), float(result["resolution"][0])


def _benchmark_and_model(result: Result) -> tuple[str, str]:
    return str(result["benchmark"]), str(result["model"])
