import re
from xml.etree import ElementTree

import numpy as np

from lsm_core.problems.panel import Panel
from lsm_core.reporting.charts import training_curves
from lsm_core.reporting.document import Folded, Picture, Section, html_page, markdown_page
from lsm_core.reporting.figures import COLOURS, panel_figure, showcase
from lsm_core.reporting.tables import Table
from tests.lsm_core.reporting.results import history


def test_the_page_is_whole_by_itself_and_shows_names_as_text() -> None:
    curves = training_curves({"lsm": [history(1.0, 0.5, 0.3)]})
    values = np.random.default_rng(0).normal(size=(3, 16))
    x = np.linspace(0, 1, 16)
    line = Panel(title="u", positions=(x,), values=values[0])
    mesh = Panel(title="u", positions=tuple(np.meshgrid(x, x)), values=np.outer(x, x))
    cloud = Panel(title="u", positions=(x, x), values=x, unit="Pa")
    drawn = [showcase([panel, panel], {"lsm": panel}) for panel in (line, mesh, cloud)]
    rows = panel_figure([[line, mesh, cloud], [line, mesh, cloud]])
    for svg in (curves, rows, *drawn):
        assert ElementTree.fromstring(svg).tag.endswith("svg")
    table = Table(headings=("model", "error"), rows=(("a < b", "1"),), marks={(0, 1): "best"})
    facts = Folded("runs", Table(headings=("run",), rows=(("<done>",),)))
    pictures = [Picture(svg, "a & b") for svg in (curves, *drawn)]
    section = Section("Burgers & more", ("run `lsm list`", table, *pictures, facts))
    page = html_page("A <title>", "summary", [section])
    for shown in (
        "A &lt;title&gt;",
        "a &amp; b",
        "<strong>1</strong>",
        "<code>lsm list</code>",
        "a &lt; b",
        "&lt;done&gt;",
        '<section id="burgers-more">',
    ):
        assert shown in page
    for remote in (' src="', ' href="http', "url(http", "<script", "<link", "@import"):
        assert remote not in page


def test_figures_take_the_colours_of_the_page_and_keep_their_ids_apart() -> None:
    svg = training_curves({"lsm": [history(1.0, 0.5, 0.3, validated=False)]})
    assert f"stroke: {COLOURS[0]}" in svg
    page = html_page("two", "", [Section("s", (Picture(svg, "one"), Picture(svg, "two")))])
    drawn = page.split("</style></head>")[1]
    assert "stroke: var(--series-1)" in drawn
    assert COLOURS[0] not in drawn
    ids = re.findall(r' id="([^"]+)"', drawn)
    assert len([name for name in ids if name.endswith("axis-name")]) == 4
    for used in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', drawn):
        assert "".join(used) in ids


def test_the_markdown_names_its_pictures_or_leaves_them_out() -> None:
    sections = [Section("One", ("text", Picture("<svg/>", "a caption"))), Section("Two", ())]
    written = markdown_page("Title", "summary", sections, ["figures/1.svg"])
    assert written == (
        "# Title\n\nsummary\n\n## One\n\ntext\n\n![a caption](figures/1.svg)\n\na caption\n"
    )
    assert "figures" not in markdown_page("Title", "summary", sections)
