"""Diagrams of studies, as SVG text: solid is measured here, dashed or hollow is published."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lsm_core.reporting.drawing import (
    COLOURS,
    GROUND,
    PHONE,
    QUIET,
    canvas,
    legend_below,
    line_styles,
    scale,
)
from lsm_core.reporting.seeds import OverSeeds

Curve = Mapping[float, OverSeeds]
"""Errors by what they are drawn against."""


def error_over_steps(curves: Mapping[str, Curve], name: str) -> str:
    """Return the error of every step of a rollout against `name`, a line a model."""
    with canvas(PHONE, 3.2) as drawing:
        ((axes,),) = drawing.grid(1, 1)
        for model, style in line_styles(curves).items():
            _line(axes, curves[model], label=model, **style)
        axes.set_xlabel(name)
        axes.set_ylabel("relative L2 error")
        axes.set_ylim(bottom=0)
        legend_below(drawing, 4)
        return drawing.svg()


def error_against_size(
    measured: Mapping[str, Curve], published: Mapping[str, Mapping[float, float]], name: str
) -> str:
    """Return the error against a size on logarithmic axes, a colour a model."""
    with canvas(PHONE, 3.4) as drawing:
        ((axes,),) = drawing.grid(1, 1)
        styles = line_styles(measured)
        for model, style in styles.items():
            _line(axes, measured[model], label=model, marker="o", markersize=4, **style)
        for model, style in styles.items():
            if published.get(model):
                _published_line(axes, published[model], f"{model}, published", style["color"])
        axes.set_xscale("log", base=2)
        means = [errors.mean for curve in measured.values() for errors in curve.values()]
        scale(axes.yaxis, [*means, *(e for values in published.values() for e in values.values())])
        _tick_at(
            axes, {size for curve in (*measured.values(), *published.values()) for size in curve}
        )
        axes.set_xlabel(name)
        axes.set_ylabel("relative L2 error")
        legend_below(drawing, 2)
        return drawing.svg()


def sweeps(measured: Mapping[str, Curve], published: Mapping[str, Mapping[float, float]]) -> str:
    """Return errors against settings, a diagram a setting, each line relative to its own mean."""
    with canvas(PHONE, 0.5 + 1.7 * len(measured)) as drawing:
        rows = drawing.grid(len(measured), 1)
        for (axes,), (name, curve) in zip(rows, measured.items(), strict=True):
            mean = float(np.mean([errors.mean for errors in curve.values()]))
            _line(axes, curve, unit=mean, label="measured", marker="o", color=COLOURS[0])
            values = published.get(name, {})
            if values:
                level = float(np.mean(list(values.values())))
                relative = {x: error / level for x, error in values.items()}
                _published_line(axes, relative, "published", COLOURS[1])
            axes.set_xlabel(name)
            axes.set_ylabel("error / mean")
            axes.set_xticks(sorted({*curve, *values}))
        legend_below(drawing)
        return drawing.svg()


def variants(measured: Mapping[str, OverSeeds], published: Mapping[str, float], whole: str) -> str:
    """Return the errors of variants as multiples of that of the whole model."""
    names = [name for name in measured if name != whole][::-1]
    with canvas(PHONE, 1.0 + 0.27 * len(names)) as drawing:
        ((axes,),) = drawing.grid(1, 1)
        places = np.arange(len(names))
        ours = [measured[name].over(measured[whole].mean) for name in names]
        axes.errorbar(
            [errors.mean for errors in ours],
            places,
            xerr=[errors.deviation for errors in ours],
            fmt="o",
            color=COLOURS[0],
            label="measured",
        )
        found = (
            [
                (published[name] / published[whole], place)
                for name, place in zip(names, places, strict=True)
                if name in published
            ]
            if whole in published
            else []
        )
        if found:
            axes.plot(
                *zip(*found, strict=True),
                "D",
                color=COLOURS[1],
                fillstyle="none",
                label="published",
            )
        axes.axvline(1.0, color=QUIET, linewidth=1)
        axes.set_yticks(places, names)
        axes.set_ylabel("variant")
        axes.set_xlabel("error / error of the whole model")
        legend_below(drawing)
        return drawing.svg()


def transfer_bars(
    scratch: Mapping[str, Curve],
    tuned: Mapping[str, Curve],
    published: Mapping[str, tuple[Mapping[float, float], Mapping[float, float]]],
) -> str:
    """Return errors from scratch and fine-tuned at each part of the data, a diagram a model."""
    with canvas(PHONE, 0.6 + 2.1 * len(scratch)) as drawing:
        rows = drawing.grid(len(scratch), 1)
        for (axes,), model in zip(rows, scratch, strict=True):
            fractions = sorted({*scratch[model], *tuned.get(model, {})})
            pairs = ((scratch[model], "from scratch"), (tuned.get(model, {}), "fine-tuned"))
            for number, (curve, label) in enumerate(pairs):
                known = published.get(model, ({}, {}))[number]
                _bars(axes, fractions, (curve, known), label, number)
            axes.set_xticks(range(len(fractions)), [f"{part:.0%}" for part in fractions])
            axes.set_ylabel(f"relative L2 error, {model}")
            axes.set_xlabel("part of the training samples")
            axes.grid(visible=False, axis="x")
        legend_below(drawing, 2)
        return drawing.svg()


def _bars(
    axes: Any,
    fractions: Sequence[float],
    values: tuple[Curve, Mapping[float, float]],
    label: str,
    number: int,
) -> None:
    curve, published = values
    shift, colour = (number - 0.5) * 0.38, COLOURS[number]
    places = [place + shift for place, part in enumerate(fractions) if part in curve]
    shown = [curve[part] for part in fractions if part in curve]
    axes.bar(
        places,
        [errors.mean for errors in shown],
        width=0.36,
        yerr=[errors.deviation for errors in shown],
        color=colour,
        ecolor=QUIET,
        label=label,
    )
    known = [
        (place + shift, published[part])
        for place, part in enumerate(fractions)
        if part in published
    ]
    if known:
        axes.plot(
            *zip(*known, strict=True),
            "D",
            color=colour,
            markerfacecolor=GROUND,  # hollow, they would not be seen on their bars
            markersize=5,
            label=f"{label}, published",
        )


def cost_scatter(points: Mapping[str, tuple[float, float, float]]) -> str:
    """Return error against seconds an epoch, the area of a disc its model's parameters.

    `points` has seconds, error and number of parameters of every model.
    """
    largest = max(parameters for *_, parameters in points.values())
    with canvas(PHONE, 3.4) as drawing:
        ((axes,),) = drawing.grid(1, 1)
        for model, style in line_styles(points).items():
            seconds, error, parameters = points[model]
            colour = style["color"]
            area = 20 + 500 * parameters / largest
            axes.scatter(seconds, error, s=area, color=colour, alpha=0.55, linewidths=0)
            axes.annotate(
                model, (seconds, error), xytext=(5, 5), textcoords="offset points", fontsize=8
            )
        axes.margins(0.18)
        scale(axes.xaxis, [seconds for seconds, *_ in points.values()])
        scale(axes.yaxis, [error for _, error, _ in points.values()])
        axes.set_xlabel("seconds an epoch [s]")
        axes.set_ylabel("relative L2 error")
        return drawing.svg()


def cost_growth(
    measured: Mapping[str, Mapping[float, float]], published: Mapping[str, Mapping[float, float]]
) -> str:
    """Return seconds a training step against the points along a side, logarithmic."""
    with canvas(PHONE, 3.4) as drawing:
        ((axes,),) = drawing.grid(1, 1)
        styles = line_styles((*measured, *(f"{name}, published" for name in published)))
        for name, values in measured.items():
            axes.plot(list(values), list(values.values()), marker="o", label=name, **styles[name])
        for name, values in published.items():
            label = f"{name}, published"
            _published_line(axes, values, label, styles[label]["color"])
        axes.set_xscale("log", base=2)
        both = (*measured.values(), *published.values())
        scale(axes.yaxis, [seconds for values in both for seconds in values.values()])
        _tick_at(
            axes, {size for values in (*measured.values(), *published.values()) for size in values}
        )
        axes.set_xlabel("points along each side")
        axes.set_ylabel("training step [s]")
        legend_below(drawing, 2)
        return drawing.svg()


def curves_over_seeds(histories: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]) -> str:
    """Return the validation error against the epoch: the mean of the seeds and their range."""
    shown: list[float] = []
    with canvas(PHONE, 3.2) as drawing:
        ((axes,),) = drawing.grid(1, 1)
        for model, style in line_styles(histories).items():
            runs = histories[model]
            epochs = [record["epoch"] for record in runs[0]]
            errors = np.array(
                [[record.get("validation", record["train"]) for record in run] for run in runs]
            )
            axes.fill_between(
                epochs, errors.min(0), errors.max(0), color=style["color"], alpha=0.25, linewidth=0
            )
            axes.plot(epochs, errors.mean(0), label=f"{model}, {len(runs)} seeds", **style)
            shown += [float(errors.min()), float(errors.max())]
        scale(axes.yaxis, shown)
        axes.set_xlabel("epoch")
        axes.set_ylabel("relative L2 error")
        axes.xaxis.get_major_locator().set_params(integer=True)
        legend_below(drawing, 2)
        return drawing.svg()


def _line(axes: Any, curve: Curve, unit: float = 1.0, **style: Any) -> None:
    places = sorted(curve)
    shown = [curve[place].over(unit) for place in places]
    means = [errors.mean for errors in shown]
    axes.errorbar(places, means, yerr=[errors.deviation for errors in shown], **style)


def _published_line(axes: Any, values: Mapping[float, float], label: str, colour: str) -> None:
    places = sorted(values)
    axes.plot(
        places,
        [values[place] for place in places],
        "--D",
        color=colour,
        markerfacecolor="none",
        markersize=4,
        linewidth=1,
        label=label,
    )


def _tick_at(axes: Any, sizes: set[float]) -> None:
    """Name the sizes that there are on a logarithmic axis, in place of powers."""
    axes.set_xticks(sorted(sizes), [f"{size:g}" for size in sorted(sizes)])
    axes.minorticks_off()
