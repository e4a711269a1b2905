"""How every picture is drawn: style, colours, and the way from a figure to SVG text."""

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

INK, QUIET, GROUND = "#1b1f24", "#5b6570", "#ffffff"
COLOURS = ("#0072b2", "#d55e00", "#008f68", "#b8588f", "#a87400", "#2f8fc7", "#7b5cc4")
"""After Okabe and Ito, whose colours colour-blind readers can tell apart; the light ones darker, to
stand out on white. A page exchanges all of these for others in the dark."""
DASHES = ("-", "-.", ":")
"""Where there are more lines than colours, these tell them apart."""
MODELS = (
    *("lsm", "fno", "unet", "uno", "mwt", "htnet", "ffno"),
    *("ufno", "galerkin", "swin", "resnet", "deeponet", "sno", "tfnet"),
    "kno",
)
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

LETTER, LEGEND_LINE, LEGEND_ROW = 0.063, 0.55, 0.16
"""Inches of a letter in a legend, of the line before its name with the space around both, and of
the height of a row."""
PHONE = 4.9
"""Inches: a figure of this width has letters of nine points or so on a phone, too."""


class Canvas:
    """A figure that is being drawn."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height), layout="constrained", dpi=130)

    def grid(self, n_rows: int, n_columns: int, **options: Any) -> Any:
        """Return axes in rows and columns."""
        return self.figure.subplots(n_rows, n_columns, squeeze=False, **options)

    def svg(self) -> str:
        """Return the drawing; names of axes carry an id that begins with `axis-name`."""
        for axes in self.figure.axes:
            for label in (axes.xaxis.label, axes.yaxis.label):
                if label.get_text():
                    label.set_gid("axis-name")
        text = io.StringIO()
        self.figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        content = text.getvalue()
        return content[content.index("<svg") :]


@contextmanager
def canvas(width: float = PHONE, height: float = 3.0) -> Iterator[Canvas]:
    """Provide a canvas in the style of all pictures, its size in inches."""
    with mpl.rc_context(STYLE):
        yield Canvas(width, height)


def line_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return colour and dashes of lines by name, LSM first; a model has the same in every figure.

    Where there are other names than models, they take the styles in their turn.
    """
    given = list(dict.fromkeys(names))
    if all(name in MODELS for name in given):
        ordered = [name for name in MODELS if name in given]
        return {name: line_style(MODELS.index(name)) for name in ordered}
    given.sort(key=lambda name: name != "lsm")
    return {name: line_style(number) for number, name in enumerate(given)}


def line_style(number: int) -> dict[str, Any]:
    """Return colour and dashes of the n-th of several lines."""
    dashes = DASHES[number // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": dashes}


def scale(axis: Any, values: Iterable[float]) -> None:
    """Make an axis logarithmic where values lie far apart, with plain numbers at 1, 2 and 5."""
    positive = [value for value in values if value > 0]
    if not positive or max(positive) < 3 * min(positive):
        return
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend_below(canvas: Canvas, n_columns: int = 3) -> None:
    """Put one legend of all axes below them, where it hides no line.

    It has as many columns as are asked for, or as fit beside each other; a long one makes the
    figure higher, not the axes lower.
    """
    handles: dict[str, Any] = {}
    for axes in canvas.figure.axes:
        found, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, found, strict=True))
    if handles:
        column = max(map(len, handles)) * LETTER + LEGEND_LINE
        fitting = max(1, min(n_columns, int(canvas.figure.get_figwidth() / column)))
        n_rows = -(-len(handles) // fitting)
        height = canvas.figure.get_figheight() + LEGEND_ROW * max(0, n_rows - 2)
        canvas.figure.set_figheight(height)
        canvas.figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=fitting
        )
