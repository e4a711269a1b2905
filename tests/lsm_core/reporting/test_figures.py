from typing import get_args

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from lsm_core.names import ModelName
from lsm_core.reporting.figures import canvas, legend_below, line_styles

SHORT = [f"model{number}" for number in range(13)]
LONG = ["release form, instance norm", "release form, circular", "release form, no norm", "lsm"]


@pytest.mark.parametrize("names", [SHORT, LONG, ["one name that is as long as half of a figure"]])
def test_a_legend_lies_within_its_figure(names: list[str]) -> None:
    with canvas() as figure:
        axes = figure.subplots()
        for name in names:
            axes.plot([0, 1], [0, 1], label=name)
        legend_below(figure, 4)
        FigureCanvasAgg(figure).draw()
        (legend,) = figure.legends
        box, page = legend.get_window_extent(), figure.bbox
    assert [text.get_text() for text in legend.get_texts()] == names
    assert page.x0 <= box.x0
    assert box.x1 <= page.x1


def test_every_model_has_a_style_of_its_own_that_others_do_not_change() -> None:
    models = get_args(ModelName)
    styles = line_styles(models)
    assert len({tuple(style.values()) for style in styles.values()}) == len(models)
    more = line_styles(["another", *reversed(models), "one more"])
    assert {model: more[model] for model in models} == styles
    assert len({tuple(style.values()) for style in more.values()}) == len(models) + 2
    assert next(iter(more)) == "lsm"
