"""Pictures of runs and predictions, as SVG text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lsm_core.problems.panel import Panel
from lsm_core.reporting.drawing import (
    COLOURS,
    INK,
    PHONE,
    QUIET,
    canvas,
    legend_below,
    line_styles,
    scale,
)


def training_curves(histories: Mapping[str, Sequence[Mapping[str, float | int]]]) -> str:
    """Return the validation error against the epoch, a line a model."""
    crowded = len(histories) > 3
    with canvas(PHONE, 3.2) as drawing:
        ((axes,),) = drawing.grid(1, 1)
        shown = []
        for model, style in line_styles(histories).items():
            history = histories[model]
            epochs = [record["epoch"] for record in history]
            # Samples to validate on may be missing; then the training error is all there is.
            errors = [record.get("validation", record["train"]) for record in history]
            trained = [record["train"] for record in history]
            axes.plot(epochs, errors, **style, label=model)
            if not crowded:
                axes.plot(epochs, trained, "--", color=style["color"], alpha=0.45)
            shown += errors if crowded else [*errors, *trained]
        scale(axes.yaxis, shown)
        axes.set_xlabel("epoch")
        axes.set_ylabel("relative L2 error" if crowded else "relative L2 error (training dashed)")
        axes.xaxis.get_major_locator().set_params(integer=True)
        legend_below(drawing)
        return drawing.svg()


def panel_figure(samples: Sequence[Sequence[Panel]], length_unit: str = "1") -> str:
    """Return samples as columns of pictures, each on its own positions.

    Pictures of one row share their range of values, so that samples can be compared.
    """
    n_rows, n_columns = len(samples[0]), len(samples)
    with canvas(3.0 * n_columns, 2.5 * n_rows) as drawing:
        axes = drawing.grid(n_rows, n_columns)
        for places, panels in zip(axes, zip(*samples, strict=True), strict=True):
            low = min(float(np.nanmin(panel.values)) for panel in panels)
            high = max(float(np.nanmax(panel.values)) for panel in panels)
            for panel, place in zip(panels, places, strict=True):
                draw_panel(drawing.figure, place, panel, (low, high), length_unit=length_unit)
        return drawing.svg()


def showcase(truth: Sequence[Panel], predicted: Mapping[str, Panel], length_unit: str = "1") -> str:
    """Return one sample: what is given, what is true, and what each model makes of it.

    On a line the models are drawn over the target, with their errors beside it. Elsewhere a column
    a model follows those of the truth: its prediction, and its error below.
    """
    target = truth[-1]
    if len(target.positions) == 1:
        return _line_showcase(truth, predicted, length_unit)
    known = _in_pairs(truth)
    errors = {
        model: replace(panel, title=f"error of {model}", values=panel.values - target.values)
        for model, panel in predicted.items()
    }
    reach = max(float(np.abs(panel.values).max()) for panel in errors.values())
    span = _span(target)
    with canvas(2.35 * (len(known) + len(predicted)), 4.4) as drawing:
        columns = drawing.grid(2, len(known) + len(predicted)).T
        for places, pair in zip(columns, known, strict=False):
            for place, panel in zip(places, pair, strict=True):
                if panel is None:
                    place.set_axis_off()
                else:
                    draw_panel(drawing.figure, place, panel, _span(panel), length_unit=length_unit)
        for (above, below), (model, panel) in zip(
            columns[len(known) :], predicted.items(), strict=True
        ):
            named = replace(panel, title=model)
            draw_panel(drawing.figure, above, named, span, length_unit=length_unit)
            draw_panel(drawing.figure, below, errors[model], (-reach, reach), "RdBu_r", length_unit)
        return drawing.svg()


def _in_pairs(panels: Sequence[Panel]) -> list[tuple[Panel | None, Panel | None]]:
    """Return panels two by two from the top; the last, the target, is the last one of all."""
    filled = [*panels] if len(panels) % 2 == 0 else [*panels, None]
    return list(zip(filled[::2], filled[1::2], strict=True))


def _line_showcase(truth: Sequence[Panel], predicted: Mapping[str, Panel], length_unit: str) -> str:
    *given, target = truth
    (x,) = target.positions
    with canvas(PHONE, 4.6) as drawing:
        ((above,), (below,)) = drawing.grid(2, 1, sharex=True, height_ratios=(3, 2))
        for panel in given:
            above.plot(x, panel.values, color=QUIET, linestyle=":", label=panel.title)
        above.plot(x, target.values, color=INK, linewidth=2.5, label=target.title)
        for model, style in line_styles(predicted).items():
            guess = predicted[model].values
            above.plot(x, guess, **style, linewidth=1.2, label=model)
            below.plot(x, guess - target.values, **style)
        above.set_ylabel(_with_unit("value", target.unit))
        below.set_ylabel(_with_unit("error", target.unit))
        below.set_xlabel(_with_unit("x", length_unit))
        legend_below(drawing)
        return drawing.svg()


def solving_figure(
    before: Panel, after: Panel, tokens: Sequence[tuple[str, Any]], length_unit: str = "1"
) -> str:
    """Return the latent solving process: features as fields, tokens in a plane.

    `tokens` are a title and points `(patch, token, 2)` before and after; tokens of one number,
    which all patches share, have one colour.
    """
    with canvas(PHONE, 4.6) as drawing:
        (fields, planes) = drawing.grid(2, 2)
        for place, panel in zip(fields, (before, after), strict=True):
            draw_panel(drawing.figure, place, panel, _span(panel), "cividis", length_unit)
        for place, (title, points) in zip(planes, tokens, strict=True):
            for number in range(points.shape[1]):
                x, y = points[:, number].T
                label = f"token {number + 1}" if points.shape[1] <= len(COLOURS) else None
                colour = COLOURS[number % len(COLOURS)]
                options = {"s": 9, "color": colour, "alpha": 0.6, "linewidths": 0}
                # Many points are smaller as pixels.
                place.scatter(x, y, label=label, rasterized=len(x) > 500, **options)
            place.set_title(title)
            place.set_xlabel("first component")
            place.set_ylabel("second component")
        legend_below(drawing, 4)
        return drawing.svg()


def draw_panel(
    figure: Figure,
    axes: Any,
    panel: Panel,
    limits: tuple[float, float],
    colours: str = "viridis",
    length_unit: str = "1",
) -> None:
    """Draw values at their positions: a line, a mesh or scattered points."""
    axes.set_title(_with_unit(panel.title, panel.unit))
    axes.set_xlabel(_with_unit("x", length_unit))
    if len(panel.positions) == 1:
        axes.plot(panel.positions[0], panel.values, color=COLOURS[0])
        axes.set_ylim(*_widened(limits))
        axes.set_ylabel(_with_unit(panel.title, panel.unit))
        return
    x, y = panel.positions
    options: dict[str, Any] = {"cmap": colours, "vmin": limits[0], "vmax": limits[1]}
    # Cells and points are drawn as pixels inside the SVG: as shapes they would be megabytes.
    if panel.values.ndim == 2:
        drawn = axes.pcolormesh(x, y, panel.values, shading="gouraud", rasterized=True, **options)
    else:
        drawn = axes.scatter(x, y, c=panel.values, s=6, rasterized=True, **options)
    axes.set_aspect("equal" if panel.true_to_scale else "auto")
    axes.grid(False)
    axes.set_ylabel(_with_unit("y", length_unit))
    if panel.window is not None:
        axes.set_xlim(*panel.window[0])
        axes.set_ylim(*panel.window[1])
    axes.locator_params(nbins=3)
    axes.tick_params(labelsize=7)
    bar = figure.colorbar(drawn, ax=axes, shrink=0.8, fraction=0.06, pad=0.03)
    bar.ax.tick_params(labelsize=7)
    bar.ax.locator_params(nbins=5)


def _with_unit(name: str, unit: str) -> str:
    """Return a name and its unit; what has none is dimensionless."""
    return name if unit == "1" else f"{name} [{unit}]"


def _span(panel: Panel) -> tuple[float, float]:
    return float(panel.values.min()), float(panel.values.max())


def _widened(limits: tuple[float, float]) -> tuple[float, float]:
    margin = 0.05 * (limits[1] - limits[0]) or 1.0
    return limits[0] - margin, limits[1] + margin
