"""Diagrams of results, as SVG text: solid is measured here, dashed or hollow is published."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lsm_core.reporting.comparison import OverSeeds
from lsm_core.reporting.figures import (
    COLOURS,
    GROUND,
    PHONE,
    QUIET,
    canvas,
    legend_below,
    line_styles,
    scale,
    svg_of,
)
from lsm_core.result import Epoch

ERROR = "relative L2 error"
MOST_LINES = 18
"""More lines than there are colours and dashes cannot be told apart."""

Curve = Mapping[float, OverSeeds]
"""Figures by what they are drawn against."""
Published = Mapping[float, float]


def training_curves(histories: Mapping[str, Sequence[Sequence[Epoch]]]) -> str:
    """Return the validation error against the epoch, a line a model.

    Of several seeds it is the mean, with a band from the lowest to the highest; only those that
    were trained as long as the first count. Few single runs have their training error beside it.
    """
    with_training = len(histories) <= 3 and all(len(runs) == 1 for runs in histories.values())
    drawn: list[float] = []
    with canvas(PHONE, 3.2) as figure:
        axes = figure.subplots()
        for model, style in line_styles(histories).items():
            runs = [run for run in histories[model] if len(run) == len(histories[model][0])]
            epochs = [epoch.epoch for epoch in runs[0]]
            # Where there are no validation samples, the error of training stands for theirs.
            errors = np.array(
                [[e.train if e.validation is None else e.validation for e in run] for run in runs]
            )
            label = model if len(runs) == 1 else f"{model}, {len(runs)} seeds"
            axes.plot(epochs, errors.mean(0), **style, label=label)
            drawn += errors.ravel().tolist()
            if len(runs) > 1:
                band = {"color": style["color"], "alpha": 0.25, "linewidth": 0}
                axes.fill_between(epochs, errors.min(0), errors.max(0), **band)
            if with_training:
                trained = [epoch.train for epoch in runs[0]]
                axes.plot(epochs, trained, "--", color=style["color"], alpha=0.45)
                drawn += trained
        scale(axes.yaxis, drawn)
        axes.set(xlabel="epoch", ylabel=f"{ERROR} (training dashed)" if with_training else ERROR)
        axes.locator_params(axis="x", integer=True)
        legend_below(figure)
        return svg_of(figure)


def error_over_steps(curves: Mapping[str, Curve], name: str) -> str:
    """Return the error of every step of a rollout against `name`, a line a model."""
    with canvas(PHONE, 3.2) as figure:
        axes = figure.subplots()
        for model, style in line_styles(curves).items():
            _line(axes, curves[model], label=model, **style)
        axes.set(xlabel=name, ylabel=ERROR)
        axes.set_ylim(bottom=0)
        legend_below(figure, 4)
        return svg_of(figure)


def against_size(
    measured: Mapping[str, Curve],
    published: Mapping[str, Published],
    size: str,
    quantity: str = ERROR,
) -> str:
    """Return a quantity against a size on logarithmic axes, a colour a name."""
    measured = _finished(measured)
    with canvas(PHONE, 3.4) as figure:
        axes = figure.subplots()
        styles = line_styles((*measured, *published))
        for name, style in styles.items():
            if name in measured:
                _line(axes, measured[name], label=name, marker="o", markersize=4, **style)
        for name, style in styles.items():
            if published.get(name):
                _published_line(axes, published[name], f"{name}, published", style["color"])
        axes.set_xscale("log", base=2)
        means = [figures.mean for curve in measured.values() for figures in curve.values()]
        scale(axes.yaxis, [*means, *(v for values in published.values() for v in values.values())])
        curves = (*measured.values(), *published.values())
        sizes = sorted({place for curve in curves for place in curve})
        axes.set_xticks(sizes, [f"{place:g}" for place in sizes])  # in place of powers
        axes.minorticks_off()
        axes.set(xlabel=size, ylabel=quantity)
        legend_below(figure, 2)
        return svg_of(figure)


def against_seconds(measured: Mapping[str, Curve]) -> str:
    """Return the error against seconds of training, a colour a name."""
    with canvas(PHONE, 3.2) as figure:
        axes = figure.subplots()
        for name, style in line_styles(measured).items():
            _line(axes, measured[name], label=name, marker="o", markersize=4, **style)
        scale(axes.xaxis, [seconds for curve in measured.values() for seconds in curve])
        scale(axes.yaxis, [e.mean for curve in measured.values() for e in curve.values()])
        axes.set(xlabel="seconds of training [s]", ylabel=ERROR)
        legend_below(figure)
        return svg_of(figure)


def sweeps(measured: Mapping[str, Curve], published: Mapping[str, Published]) -> str:
    """Return errors against numbers of things, a diagram each, lines relative to their own mean."""
    measured = {name: curve for name, curve in _finished(measured).items() if curve}
    with canvas(PHONE, 0.5 + 1.7 * len(measured)) as figure:
        rows = figure.subplots(len(measured), 1, squeeze=False)
        for (axes,), (name, curve) in zip(rows, measured.items(), strict=True):
            mean = float(np.mean([errors.mean for errors in curve.values()]))
            _line(axes, curve, unit=mean, label="measured", marker="o", color=COLOURS[0])
            values = published.get(name, {})
            if values:
                level = float(np.mean(list(values.values())))
                relative = {x: error / level for x, error in values.items()}
                _published_line(axes, relative, "published", COLOURS[1])
            axes.set(xlabel=f"number of {name}", ylabel="error / mean")
            axes.set_xticks(sorted({*curve, *values}))
        legend_below(figure)
        return svg_of(figure)


def variants(
    measured: Mapping[str, OverSeeds], published: Mapping[str, float | None], whole: str
) -> str:
    """Return the errors of variants as multiples of that of the whole model."""
    names = [name for name in measured if name != whole][::-1]
    with canvas(PHONE, 1.0 + 0.27 * len(names)) as figure:
        axes = figure.subplots()
        ours = [measured[name].over(measured[whole].mean) for name in names]
        axes.errorbar(
            [errors.mean for errors in ours],
            range(len(names)),
            xerr=[errors.deviation for errors in ours],
            fmt="o",
            color=COLOURS[0],
            label="measured",
        )
        level = published.get(whole)
        if level:
            known = [
                (error / level, float(place))
                for place, name in enumerate(names)
                if (error := published.get(name))
            ]
            _published(axes, known, "published", color=COLOURS[1], fillstyle="none")
        axes.axvline(1.0, color=QUIET, linewidth=1)
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="error / error of the whole model", ylabel="variant")
        legend_below(figure)
        return svg_of(figure)


def transfer_bars(
    scratch: Mapping[str, Curve],
    tuned: Mapping[str, Curve],
    published: Mapping[str, tuple[Published, Published]],
) -> str:
    """Return errors from scratch and fine-tuned at each part of the data, a diagram a model."""
    scratch, tuned = _finished(scratch), _finished(tuned)
    with canvas(PHONE, 0.6 + 2.1 * len(scratch)) as figure:
        rows = figure.subplots(len(scratch), 1, squeeze=False)
        for (axes,), model in zip(rows, scratch, strict=True):
            fractions = sorted({*scratch[model], *tuned.get(model, {})})
            pairs = ((scratch[model], "from scratch"), (tuned.get(model, {}), "fine-tuned"))
            for number, (curve, label) in enumerate(pairs):
                known = published.get(model, ({}, {}))[number]
                _bars(axes, fractions, (curve, known), label, number)
            axes.set_xticks(range(len(fractions)), [f"{part:.0%}" for part in fractions])
            axes.set(xlabel="part of the training samples", ylabel=f"{ERROR}, {model}")
            axes.grid(visible=False, axis="x")
        legend_below(figure, 2)
        return svg_of(figure)


def _bars(
    axes: Any,
    fractions: Sequence[float],
    values: tuple[Curve, Published],
    label: str,
    number: int,
) -> None:
    curve, published = values
    places = {part: place + (number - 0.5) * 0.38 for place, part in enumerate(fractions)}
    drawn = [part for part in fractions if part in curve]
    axes.bar(
        [places[part] for part in drawn],
        [curve[part].mean for part in drawn],
        width=0.36,
        yerr=[curve[part].deviation for part in drawn],
        color=COLOURS[number],
        ecolor=QUIET,
        label=label,
    )
    _published(
        axes,
        [(places[part], published[part]) for part in fractions if part in published],
        f"{label}, published",
        color=COLOURS[number],
        markerfacecolor=GROUND,  # hollow, they would not be seen on their bars
        markersize=5,
    )


Discs = Mapping[str, tuple[float, float, float]]
"""Seconds an epoch, error and number of parameters, by model."""


def cost_scatters(points: Mapping[str, Discs]) -> str:
    """Return error against seconds an epoch, a small diagram a problem, all in one figure.

    The area of a disc is its model's parameters; a model has one colour in all of them.
    """
    largest = max(parameters for own in points.values() for *_, parameters in own.values())
    styles = line_styles(dict.fromkeys(model for own in points.values() for model in own))
    n_columns = min(2, len(points))
    n_rows = -(-len(points) // n_columns)
    with canvas(PHONE * (1 if n_columns == 1 else 1.7), 3.0 * n_rows + 0.4) as figure:
        grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
        for axes, (problem, own) in zip(grid, points.items(), strict=False):
            for model, (seconds, error, parameters) in own.items():
                area = 20 + 350 * parameters / largest
                colour = styles[model]["color"]
                axes.scatter(seconds, error, s=area, color=colour, alpha=0.55, linewidths=0)
                axes.annotate(
                    model, (seconds, error), xytext=(5, 5), textcoords="offset points", fontsize=8
                )
            axes.margins(0.18)
            scale(axes.xaxis, [seconds for seconds, *_ in own.values()])
            scale(axes.yaxis, [error for _, error, _ in own.values()])
            axes.set(title=problem, xlabel="seconds an epoch [s]", ylabel=ERROR)
        for axes in grid[len(points) :]:
            axes.set_visible(False)
        return svg_of(figure)


def _finished(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """Return curves without the places at which every run failed."""
    return {
        name: {place: figures for place, figures in curve.items() if figures.values}
        for name, curve in curves.items()
    }


def _line(axes: Any, curve: Curve, unit: float = 1.0, **style: Any) -> None:
    places = sorted(curve)
    drawn = [curve[place].over(unit) for place in places]
    means = [figures.mean for figures in drawn]
    axes.errorbar(places, means, yerr=[figures.deviation for figures in drawn], **style)


def _published_line(axes: Any, values: Published, label: str, colour: str) -> None:
    style = {"color": colour, "markerfacecolor": "none", "markersize": 4, "linewidth": 1}
    _published(axes, sorted(values.items()), label, "--", **style)


def _published(
    axes: Any, points: Sequence[tuple[float, float]], label: str, linestyle: str = "", **style: Any
) -> None:
    """Draw the paper's figures as diamonds, if there are any."""
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, marker="D", linestyle=linestyle, label=label, **style)


def error_pairs(pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """Return the challenger's error of every sample against the champion's, a colour a kind.

    Below the diagonal the challenger is better.
    """
    with canvas(PHONE, 4.4) as figure:
        axes = figure.subplots()
        everything = np.concatenate([np.concatenate(pair) for pair in pairs.values()])
        reach = [0.8 * float(everything.min()), 1.25 * float(everything.max())]
        axes.plot(reach, reach, color=QUIET, linewidth=1, label="equal")
        below = [reach[0], reach[0]]
        axes.fill_between(reach, below, reach, color=QUIET, alpha=0.08, linewidth=0)
        for (kind, (champion, challenger)), colour in zip(pairs.items(), COLOURS, strict=False):
            axes.scatter(champion, challenger, s=22, color=colour, alpha=0.75, label=kind)
        scale(axes.xaxis, everything.tolist())
        scale(axes.yaxis, everything.tolist())
        axes.set(
            xlim=reach,
            ylim=reach,
            aspect="equal",
            xlabel="champion's relative L2 error",
            ylabel="challenger's (below: better)",
        )
        legend_below(figure)
        return svg_of(figure)


def coverage(curves: Mapping[str, Mapping[float, float]]) -> str:
    """Return how many errors stay below the expected one, against how many should, a line a model.

    Above the diagonal a model expects more than it errs, below it promises too much.
    """
    with canvas(PHONE, 3.6) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=QUIET, linewidth=1, label="as stated")
        for model, style in line_styles(curves).items():
            stated = sorted(curves[model])
            axes.plot(stated, [curves[model][part] for part in stated], **style, label=model)
        axes.set(
            xlim=(0, 1), ylim=(0, 1.02), xlabel="coverage stated", ylabel="coverage on test samples"
        )
        legend_below(figure)
        return svg_of(figure)
