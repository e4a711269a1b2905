import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from lsm_core.reporting.drawing import canvas, legend_below

SHORT = [f"model{number}" for number in range(13)]
LONG = ["release form, instance norm", "release form, circular", "release form, no norm", "lsm"]


@pytest.mark.parametrize("names", [SHORT, LONG, ["one name that is as long as half of a figure"]])
def test_a_legend_lies_within_its_figure(names: list[str]) -> None:
    with canvas() as drawing:
        ((axes,),) = drawing.grid(1, 1)
        for name in names:
            axes.plot([0, 1], [0, 1], label=name)
        legend_below(drawing, 4)
        FigureCanvasAgg(drawing.figure).draw()
        (legend,) = drawing.figure.legends
        box, page = legend.get_window_extent(), drawing.figure.bbox
    assert [text.get_text() for text in legend.get_texts()] == names
    assert page.x0 <= box.x0
    assert box.x1 <= page.x1
