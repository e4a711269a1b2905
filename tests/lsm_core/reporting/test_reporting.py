import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from lsm_core.problems.panel import Panel
from lsm_core.reporting.comparison import compare, markdown_table, text_table
from lsm_core.reporting.document import Facts, Picture, Section, html_page, markdown_page
from lsm_core.reporting.drawing import COLOURS
from lsm_core.reporting.figures import panel_figure, showcase, training_curves
from lsm_core.reporting.published_results import (
    published_ablation,
    published_error,
    published_sweep,
    published_transfer,
)
from lsm_core.reporting.table import Table


def result(model: str, error: float, seed: int = 0) -> dict[str, Any]:
    return {
        "benchmark": "burgers",
        "resolution": [256],
        "model": model,
        "seed": seed,
        "parameters": 1234,
        "test": {"rel_l2": error},
        "mean_prediction": 1.0,
        "seconds_per_epoch": 0.5,
        "peak_bytes": 300 * 2**20,
    }


def test_the_best_comes_first_with_the_papers_figure_beside_it() -> None:
    rows = compare([result("lsm", 0.02), result("fno", 0.01)])
    assert [row.model for row in rows] == ["fno", "lsm"]
    assert [row.published for row in rows] == [0.00332, 0.00123]


def test_seeds_are_averaged_and_failures_are_shown() -> None:
    failed = {**result("lsm", 0), "error": "Diverged: nan"}
    (row,) = compare([result("lsm", 0.01), result("lsm", 0.03, seed=1), failed])
    assert row.error == pytest.approx(0.02)
    assert row.cells()[3] == "0.02000 ± 0.01414 (1 failed)"
    (lost,) = compare([failed])
    assert lost.cells()[3] == "failed"


def test_a_setting_that_the_paper_has_not_is_a_row_without_a_published_figure() -> None:
    rows = compare([{**result("lsm", 0.02), "setting": "smooth form"}, result("lsm", 0.03)])
    assert [row.model for row in rows] == ["lsm (smooth form)", "lsm"]
    assert [row.published for row in rows] == [None, 0.00123]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"setting": "lsm from scratch, 20% of the data", "fraction": 0.2}, 0.0166),
        ({"setting": "lsm from scratch, 100% of the data"}, 0.0059),
        ({"setting": "lsm fine-tuned, 20% of the data", "fraction": 0.2, "source": "a"}, 0.0131),
        ({"setting": "lsm fine-tuned, 100% of the data", "source": "a"}, 0.0055),
        ({"source": "a run of anything"}, None),
        ({"fraction": 0.3}, None),
        ({"setting": "without patches"}, 0.0062),
        ({"setting": "fourier solver"}, None),
        ({"setting": "4 tokens"}, None),
        ({"setting": "4 tokens", "benchmark": "elasticity_g"}, 0.0408),
        ({"setting": "lsm at 64", "benchmark": "darcy", "resolution": [64, 64]}, 0.0042),
        ({"setting": "lsm at 43", "benchmark": "darcy", "resolution": [43, 43]}, None),
        ({"fraction": 0.2, "benchmark": "darcy"}, None),
    ],
)
def test_runs_of_studies_stand_beside_the_figures_of_their_own_tables(
    changes: dict[str, Any], expected: float | None
) -> None:
    (row,) = compare([{**result("lsm", 0.02), "benchmark": "airfoil", **changes}])
    assert row.published == expected


def test_tables_have_one_line_a_row() -> None:
    rows = compare([result("lsm", 0.02), result("fno", 0.01)])
    line = "| burgers (256) | fno | 1,234 | 0.01000 | 0.50 | 300 | 0.00332 |"
    assert line in markdown_table(rows)
    lines = text_table(rows).splitlines()
    assert len(lines) == 5
    assert lines[2].split() == line.replace("|", "").split()
    assert lines[4] == "Predicting the mean of burgers: 1.0000"


def test_published_figures_are_looked_up_where_the_paper_has_them() -> None:
    assert published_error("burgers", "lsm", (8192,)) == 0.00105
    assert published_error("burgers", "lsm", (100,)) is None
    assert published_ablation("darcy", "without patches") == 0.0068
    assert published_ablation("darcy", "fourier solver") == 0.0073
    assert published_ablation("airfoil", "fourier solver") is None
    assert published_sweep("scales") == {3: 0.0428, 4: 0.0412, 5: 0.0408, 6: 0.04, 7: 0.0402}
    scratch, tuned = published_transfer("lsm")
    assert (scratch[0.2], tuned[0.2]) == (0.0166, 0.0131)


def test_the_page_is_whole_by_itself_and_shows_names_as_text() -> None:
    history = [{"epoch": e, "train": 1 / e, "validation": 2 / e} for e in (1, 2, 3)]
    curves = training_curves({"lsm": history})
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
    facts = Facts("runs", (("one", "<done>"),))
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
    history = [{"epoch": e, "train": 1 / e} for e in (1, 2, 3)]
    svg = training_curves({"lsm": history})
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


def test_a_table_refuses_a_row_of_another_length() -> None:
    with pytest.raises(ValueError, match="a row has 1 cells for 2 headings"):
        Table(headings=("a", "b"), rows=(("1",),))
