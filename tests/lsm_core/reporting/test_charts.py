import re
from xml.etree import ElementTree

from lsm_core.reporting.charts import against_size, training_curves
from lsm_core.reporting.comparison import OverSeeds
from tests.lsm_core.reporting.results import history


def words(svg: str) -> list[str]:
    """Return what is written in a picture."""
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_single_runs_have_their_training_error_beside_them_if_they_are_few() -> None:
    few = {"lsm": [history(0.5, 0.4)], "fno": [history(0.6, 0.5)]}
    assert "relative L2 error (training dashed)" in words(training_curves(few))
    many = {f"model {number}": [history(0.5, 0.4)] for number in range(4)}
    assert "relative L2 error" in words(training_curves(many))


def test_seeds_that_were_trained_as_long_as_the_first_are_one_line() -> None:
    runs = [history(0.5, 0.4), history(0.6, 0.5), history(0.6, 0.5, 0.4)]
    assert "lsm, 2 seeds" in words(training_curves({"lsm": runs}))


def test_published_figures_have_a_line_also_of_names_that_were_not_measured() -> None:
    measured = {"lsm (paper)": {64.0: OverSeeds((0.1,)), 128.0: OverSeeds((0.4,))}}
    svg = against_size(measured, {"lsm": {64.0: 0.2, 256.0: 0.9}}, "points", "seconds")
    assert {"lsm (paper)", "lsm, published", "64", "128", "256"} <= set(words(svg))
