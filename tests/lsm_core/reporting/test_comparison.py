import pytest

from lsm_core.reporting.comparison import compare, ranks, row_name
from tests.lsm_core.reporting.results import failure, result


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("", "lsm"),
        ("smooth form", "lsm (smooth form)"),
        ("lsm", "lsm"),
        ("lsm fine-tuned, 20% of the data", "lsm (fine-tuned, 20% of the data)"),
    ],
)
def test_a_row_names_its_model_once(setting: str, expected: str) -> None:
    assert row_name(result(setting=setting)) == expected


def test_runs_with_less_data_or_another_start_are_not_averaged_with_others() -> None:
    assert row_name(result()) == "lsm"
    assert row_name(result(fraction=0.2)) == "lsm (20% of the data)"
    assert row_name(result(fraction=0.2, source="a")) == "lsm (fine-tuned, 20% of the data)"


def test_the_best_comes_first_with_the_papers_figure_beside_it() -> None:
    rows = compare([result("lsm", 0.02), result("fno", 0.01)])
    assert [row.model for row in rows] == ["fno", "lsm"]
    assert [row.published for row in rows] == [0.00332, 0.00123]


def test_seeds_are_averaged_and_failures_are_shown() -> None:
    (row,) = compare([result("lsm", 0.01), result("lsm", 0.03, seed=1), failure("lsm")])
    assert row.errors.mean == pytest.approx(0.02)
    assert row.errors.text() == "0.02 ± 0.014 (1 failed)"
    (lost,) = compare([failure("lsm")])
    assert lost.errors.text() == "failed"


def test_a_setting_that_the_paper_has_not_is_a_row_without_a_published_figure() -> None:
    rows = compare([result("lsm", 0.02, setting="smooth form"), result("lsm", 0.03)])
    assert [row.model for row in rows] == ["lsm (smooth form)", "lsm"]
    assert [row.published for row in rows] == [None, 0.00123]


def test_a_benchmark_and_a_model_that_the_paper_has_not_are_compared_without_it() -> None:
    rows = compare([result("lsm", benchmark="ninth"), result("newest", 0.03, benchmark="ninth")])
    assert [(row.model, row.published) for row in rows] == [("lsm", None), ("newest", None)]


def test_models_are_ranked_on_every_benchmark_and_failures_are_not() -> None:
    outcomes = [
        result("lsm", 0.01, benchmark="darcy"),
        result("fno", 0.02, benchmark="darcy"),
        result("fno", 0.1, benchmark="pipe"),
        failure("unet", benchmark="pipe"),
    ]
    places = ranks(compare(outcomes))
    assert places["darcy", "lsm"] == 1
    assert places["darcy", "fno"] == 2
    assert places["pipe", "fno"] == 1
    assert ("pipe", "unet") not in places
