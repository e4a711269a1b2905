"""Pictures of runs and predictions, as SVG text."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

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


def training_curves(histories: Mapping[str, Sequence[Mapping[str, float | int]]]) -> str:
    """Return the validation error against the epoch, a line a model."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        axes = figure.subplots()
        for colour, (model, history) in zip(COLOURS, histories.items(), strict=False):
            epochs = [record["epoch"] for record in history]
            axes.semilogy(epochs, [r["validation"] for r in history], color=colour, label=model)
            axes.semilogy(
                epochs, [r["train"] for r in history], color=colour, alpha=0.35, linestyle="--"
            )
        axes.set_xlabel("epoch")
        axes.set_ylabel("relative L2")
        axes.legend(title="validation (training dashed)", frameon=False)
        return _svg(figure)


def line_showcase(
    x: Float[np.ndarray, " points"],
    inputs: Float[np.ndarray, "samples points"],
    targets: Float[np.ndarray, "samples points"],
    predictions: Mapping[str, Float[np.ndarray, "samples points"]],
) -> str:
    """Return samples of a problem on a line: input and target above, errors of the models below."""
    n_samples = len(targets)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2.6 * n_samples, 4.2), layout="constrained")
        axes = figure.subplots(2, n_samples, sharex=True, squeeze=False, height_ratios=(2, 1))
        for sample in range(n_samples):
            above, below = axes[:, sample]
            above.plot(x, inputs[sample], color="0.6", linestyle=":", label="input")
            above.plot(x, targets[sample], color="0.1", linewidth=2.5, label="target")
            for colour, (model, values) in zip(COLOURS, predictions.items(), strict=False):
                above.plot(x, values[sample], color=colour, linewidth=1.2, label=model)
                below.plot(x, values[sample] - targets[sample], color=colour, linewidth=1.0)
            above.set_title(f"test sample {sample + 1}")
            below.set_xlabel("x")
        axes[0, 0].set_ylabel("u")
        axes[1, 0].set_ylabel("error")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        return _svg(figure)


def _svg(figure: Any) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    content = text.getvalue()
    return content[content.index("<svg") :]
