"""Pictures of runs and predictions, as SVG text."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from lsm_core.problems.panel import Panel

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small files, sharp at any size
    "svg.hashsalt": "lsm",  # equal input gives equal bytes
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""
DASHES = ("-", "-.", ":")
"""Where there are more lines than colours, these tell them apart."""


def training_curves(histories: Mapping[str, Sequence[Mapping[str, float | int]]]) -> str:
    """Return the validation error against the epoch, a line a model."""
    with mpl.rc_context(STYLE):
        crowded = len(histories) > 3
        height = 3.2 + 0.18 * (len(histories) + 2) // 3 if crowded else 3.2
        figure = Figure(figsize=(7.2, height), layout="constrained")
        axes = figure.subplots()
        for number, (model, history) in enumerate(histories.items()):
            colour = COLOURS[number % len(COLOURS)]
            dashes = DASHES[number // len(COLOURS) % len(DASHES)]
            epochs = [record["epoch"] for record in history]
            # Samples to validate on may be missing; then the training error is all there is.
            errors = [record.get("validation", record["train"]) for record in history]
            axes.semilogy(epochs, errors, dashes, color=colour, label=model)
            if not crowded:
                trained = [record["train"] for record in history]
                axes.semilogy(epochs, trained, "--", color=colour, alpha=0.35)
        axes.set_xlabel("epoch")
        axes.set_ylabel("relative L2")
        title = "validation" if crowded else "validation (training dashed)"
        if crowded:  # many names would hide the lines
            figure.legend(loc="outside lower center", frameon=False, ncols=3, fontsize=8)
            axes.set_ylabel(f"relative L2, {title}")
        else:
            axes.legend(title=title, frameon=False)
        return _svg(figure)


def panel_figure(samples: Sequence[Sequence[Panel]]) -> str:
    """Return samples as columns of pictures, each on its own positions.

    Pictures of one row share their range of values, so that samples can be compared.
    """
    n_rows, n_columns = len(samples[0]), len(samples)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * n_columns, 2.6 * n_rows), layout="constrained", dpi=130)
        axes = figure.subplots(n_rows, n_columns, squeeze=False)
        for places, panels in zip(axes, zip(*samples, strict=True), strict=True):
            low = min(float(np.nanmin(panel.values)) for panel in panels)
            high = max(float(np.nanmax(panel.values)) for panel in panels)
            for panel, place in zip(panels, places, strict=True):
                _draw(figure, place, panel, (low, high))
        return _svg(figure)


def showcase(truth: Sequence[Panel], predicted: Mapping[str, Panel]) -> str:
    """Return one sample: what is given, what is true, and what each model makes of it.

    On a line the models are drawn over the target, with their errors beside it; elsewhere each has
    a picture, and one of its error below.
    """
    target = truth[-1]
    if len(target.positions) == 1:
        return _line_showcase(truth, predicted)
    above = [*truth, *(replace(panel, title=model) for model, panel in predicted.items())]
    below = [
        replace(panel, title=f"error of {model}", values=panel.values - target.values)
        for model, panel in predicted.items()
    ]
    reach = max(float(np.abs(panel.values).max()) for panel in below)
    own = [(float(panel.values.min()), float(panel.values.max())) for panel in truth]
    limits = [*own, *[own[-1]] * len(below)]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.0 * len(above), 5.0), layout="constrained", dpi=130)
        axes = figure.subplots(2, len(above), squeeze=False)
        for place, panel, limit in zip(axes[0], above, limits, strict=True):
            _draw(figure, place, panel, limit)
        for place in axes[1, : len(truth)]:
            place.set_axis_off()
        for place, panel in zip(axes[1, len(truth) :], below, strict=True):
            _draw(figure, place, panel, (-reach, reach), "RdBu_r")
        return _svg(figure)


def _line_showcase(truth: Sequence[Panel], predicted: Mapping[str, Panel]) -> str:
    *given, target = truth
    (x,) = target.positions
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 2.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        for panel in given:
            left.plot(x, panel.values, color="0.6", linestyle=":", label=panel.title)
        left.plot(x, target.values, color="0.1", linewidth=2.5, label=target.title)
        for colour, (model, panel) in zip(COLOURS, predicted.items(), strict=False):
            left.plot(x, panel.values, color=colour, linewidth=1.2, label=model)
            right.plot(x, panel.values - target.values, color=colour, label=model)
        for place, title in ((left, "values"), (right, "error")):
            place.set_title(title)
            place.set_xlabel("x")
        left.legend(frameon=False)
        return _svg(figure)


def _draw(
    figure: Figure,
    axes: Any,
    panel: Panel,
    limits: tuple[float, float],
    colours: str = "viridis",
) -> None:
    axes.set_title(panel.title if panel.unit == "1" else f"{panel.title} [{panel.unit}]")
    if len(panel.positions) == 1:
        axes.plot(panel.positions[0], panel.values, color=COLOURS[0])
        axes.set_ylim(*_widened(limits))
        axes.set_xlabel("x")
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
    axes.set_xlabel("x")
    axes.set_ylabel("y")
    if panel.window is not None:
        axes.set_xlim(*panel.window[0])
        axes.set_ylim(*panel.window[1])
    figure.colorbar(drawn, ax=axes, shrink=0.85)


def _widened(limits: tuple[float, float]) -> tuple[float, float]:
    margin = 0.05 * (limits[1] - limits[0]) or 1.0
    return limits[0] - margin, limits[1] + margin


def _svg(figure: Any) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    content = text.getvalue()
    return content[content.index("<svg") :]
