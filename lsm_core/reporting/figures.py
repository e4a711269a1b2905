"""How every picture is drawn, as SVG text, and pictures of fields: samples and predictions."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, zip_longest
from typing import Any, TypeVar, get_args

import matplotlib as mpl
import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from lsm_core.names import ModelName
from lsm_core.problems.panel import Panel

INK, QUIET, GROUND = "#1b1f24", "#5b6570", "#ffffff"
COLOURS = ("#0072b2", "#d55e00", "#008f68", "#b8588f", "#a87400", "#2f8fc7", "#7b5cc4")
"""After Okabe and Ito, whose colours colour-blind readers can tell apart; the light ones darker, to
stand out on white. A page exchanges all of these for others in the dark."""
LINE_STYLES: tuple[dict[str, Any], ...] = tuple(
    {"color": colour, "linestyle": dashes}
    for dashes in ("-", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))
    for colour in COLOURS
)
"""Where there are more lines than colours, dashes tell them apart."""
FIRST_MODELS = (
    *("lsm", "fno", "unet", "uno", "mwt", "htnet", "ffno"),
    *("ufno", "galerkin", "swin", "resnet", "deeponet", "sno", "tfnet"),
)
MODELS = (*FIRST_MODELS, *(name for name in get_args(ModelName) if name not in FIRST_MODELS))
"""The models as they take colours: those that are most often shown together first."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small files, sharp at any size
    "svg.hashsalt": "lsm",  # equal input gives equal bytes
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": GROUND,
    "axes.facecolor": GROUND,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": QUIET,
    "grid.alpha": 0.2,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "errorbar.capsize": 2.5,
}

Drawn = TypeVar("Drawn", str, bytes)
"""A picture as text or as pixels."""
LETTER, LEGEND_LINE, LEGEND_ROW = 0.063, 0.55, 0.16
"""Inches of a letter in a legend, of the line before its name with the space around both, and of
the height of a row."""
PHONE = 4.9
"""Inches: a figure of this width has letters of nine points or so on a phone, too."""


@dataclass(frozen=True, kw_only=True)
class PanelOnMesh(Panel):
    """A picture of the cells of a mesh, one for each value, drawn in place of points."""

    polygons: tuple[np.ndarray[Any, np.dtype[Any]], ...]
    """Their corners, each `(n, 2)`."""


@contextmanager
def canvas(width: float = PHONE, height: float = 3.0) -> Iterator[Figure]:
    """Provide an empty figure in the style of all pictures, its size in inches."""
    with mpl.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained", dpi=130)


def svg_of(figure: Figure) -> str:
    """Return a figure as text; names of axes carry an id that begins with `axis-name`."""
    for axes in figure.axes:
        for label in (axes.xaxis.label, axes.yaxis.label):
            if label.get_text():
                label.set_gid("axis-name")
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    content = text.getvalue()
    return content[content.index("<svg") :]


def png_of(figure: Figure) -> bytes:
    """Return a figure as pixels, for where no SVG is shown."""
    content = io.BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def line_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return colour and dashes of lines by name, LSM first; a model has the same in every figure.

    Names that are not those of models take the styles that are left, in their turn.
    """
    given = dict.fromkeys(names)
    numbers = {name: MODELS.index(name) for name in given if name in MODELS}
    taken = set(numbers.values())
    left = (number for number in count() if number not in taken)
    numbers |= {name: next(left) for name in given if name not in numbers}
    ordered = sorted(numbers, key=numbers.__getitem__)
    return {name: LINE_STYLES[numbers[name] % len(LINE_STYLES)] for name in ordered}


def scale(axis: Any, values: Iterable[float]) -> None:
    """Make an axis logarithmic where values lie far apart, with plain numbers at 1, 2 and 5."""
    positive = [value for value in values if value > 0]
    if not positive or max(positive) < 3 * min(positive):
        return
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend_below(figure: Figure, n_columns: int = 3) -> None:
    """Put one legend of all axes below them, where it hides no line.

    It has as many columns as are asked for, or as fit beside each other; a long one makes the
    figure higher, not the axes lower.
    """
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        found, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, found, strict=True))
    if handles:
        column = max(map(len, handles)) * LETTER + LEGEND_LINE
        fitting = max(1, min(n_columns, int(figure.get_figwidth() / column)))
        n_rows = -(-len(handles) // fitting)
        height = figure.get_figheight() + LEGEND_ROW * max(0, n_rows - 2)
        figure.set_figheight(height)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=fitting)


def panel_figure(
    samples: Sequence[Sequence[Panel]], length_unit: str = "1", *, one_range: bool = False
) -> str:
    """Return samples as columns of pictures, each on its own positions.

    Pictures of one row share their range of values, so that samples can be compared; with
    `one_range` all pictures do, as truth and prediction have to.
    """
    every = [panel for panels in samples for panel in panels]
    n_rows, n_columns = len(samples[0]), len(samples)
    with canvas(3.0 * n_columns, 2.5 * n_rows) as figure:
        axes = figure.subplots(n_rows, n_columns, squeeze=False)
        for places, panels in zip(axes, zip(*samples, strict=True), strict=True):
            alike = every if one_range else panels
            low = min(float(np.nanmin(panel.values)) for panel in alike)
            high = max(float(np.nanmax(panel.values)) for panel in alike)
            for panel, place in zip(panels, places, strict=True):
                draw_panel(place, panel, (low, high), length_unit=length_unit)
        return svg_of(figure)


def showcase(
    truth: Sequence[Panel],
    predicted: Mapping[str, Panel],
    length_unit: str = "1",
    drawn: Callable[[Figure], Drawn] = svg_of,  # type: ignore[assignment]
) -> Drawn:
    """Return one sample: what is given, what is true, and what each model makes of it.

    On a line the models are drawn over the target, with their errors beside it. Elsewhere a column
    a model follows those of the truth: its prediction, and its error below.
    """
    target = truth[-1]
    if len(target.positions) == 1:
        return _line_showcase(truth, predicted, length_unit, drawn)
    known = list(zip_longest(truth[::2], truth[1::2]))  # two by two, from the top
    errors = {
        model: replace(panel, title=f"error of {model}", values=panel.values - target.values)
        for model, panel in predicted.items()
    }
    reach = max(float(np.abs(panel.values).max()) for panel in errors.values())
    span = _span(target)
    with canvas(2.35 * (len(known) + len(predicted)), 4.4) as figure:
        columns = figure.subplots(2, len(known) + len(predicted), squeeze=False).T
        for places, pair in zip(columns, known, strict=False):
            for place, panel in zip(places, pair, strict=True):
                if panel is None:
                    place.set_axis_off()
                else:
                    draw_panel(place, panel, _span(panel), length_unit=length_unit)
        for (above, below), (model, panel) in zip(
            columns[len(known) :], predicted.items(), strict=True
        ):
            named = replace(panel, title=model)
            draw_panel(above, named, span, length_unit=length_unit)
            draw_panel(below, errors[model], (-reach, reach), "RdBu_r", length_unit)
        return drawn(figure)


def _line_showcase(
    truth: Sequence[Panel],
    predicted: Mapping[str, Panel],
    length_unit: str,
    drawn: Callable[[Figure], Drawn],
) -> Drawn:
    *given, target = truth
    (x,) = target.positions
    with canvas(PHONE, 4.6) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for panel in given:
            above.plot(x, panel.values, color=QUIET, linestyle=":", label=panel.title)
        above.plot(x, target.values, color=INK, linewidth=2.5, label=target.title)
        for model, style in line_styles(predicted).items():
            guess = predicted[model].values
            above.plot(x, guess, **style, linewidth=1.2, label=model)
            below.plot(x, guess - target.values, **style)
        above.set_ylabel(_with_unit("value", target.unit))
        below.set(xlabel=_with_unit("x", length_unit), ylabel=_with_unit("error", target.unit))
        legend_below(figure)
        return drawn(figure)


def solving_figure(
    before: Panel, after: Panel, tokens: Sequence[tuple[str, Any]], length_unit: str = "1"
) -> str:
    """Return the latent solving process: features as fields, tokens in a plane.

    `tokens` are a title and points `(patch, token, 2)` before and after; tokens of one number,
    which all patches share, have one colour.
    """
    with canvas(PHONE, 4.6) as figure:
        (fields, planes) = figure.subplots(2, 2)
        for place, panel in zip(fields, (before, after), strict=True):
            draw_panel(place, panel, _span(panel), "cividis", length_unit)
        for place, (title, points) in zip(planes, tokens, strict=True):
            for number in range(points.shape[1]):
                x, y = points[:, number].T
                label = f"token {number + 1}" if points.shape[1] <= len(COLOURS) else None
                colour = COLOURS[number % len(COLOURS)]
                options = {"s": 9, "color": colour, "alpha": 0.6, "linewidths": 0}
                # Many points are smaller as pixels.
                place.scatter(x, y, label=label, rasterized=len(x) > 500, **options)
            place.set(title=title, xlabel="first component", ylabel="second component")
        legend_below(figure, 4)
        return svg_of(figure)


def draw_panel(
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
    drawn: Any
    if isinstance(panel, PanelOnMesh):
        low, high = limits
        drawn = PolyCollection(panel.polygons, cmap=colours, rasterized=True)
        drawn.set_array(panel.values)
        drawn.set_clim(low, high)
        drawn.set_edgecolor("face")
        axes.add_collection(drawn)
        axes.autoscale_view()
    elif panel.values.ndim == 2:
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
    bar = axes.figure.colorbar(drawn, ax=axes, shrink=0.8, fraction=0.06, pad=0.03)
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
