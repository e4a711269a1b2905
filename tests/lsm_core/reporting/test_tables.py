import pytest

from lsm_core.reporting.comparison import compare
from lsm_core.reporting.tables import (
    Table,
    comparison_table,
    leaderboard_table,
    provenance_table,
    table_of,
)
from tests.lsm_core.reporting.results import failure, result

DARCY = {"benchmark": "darcy", "resolution": (8, 8)}
PIPE = {"benchmark": "pipe", "resolution": (8, 8)}
OUTCOMES = [
    result("lsm", 0.01, **DARCY),
    result("fno", 0.02, **DARCY),
    result("unet", 0.03, **DARCY),
    result("lsm", 0.2, **PIPE),
    result("fno", 0.1, **PIPE),
    failure("unet", **PIPE),
]


def test_the_leaderboard_marks_first_and_second_and_orders_by_mean_rank() -> None:
    lines = leaderboard_table(compare(OUTCOMES)).markdown().splitlines()
    assert lines[0] == "| model | darcy | pipe | mean rank |"
    assert lines[2:] == [
        "| lsm | **0.0100** | *0.2000* | 1.5 |",
        "| fno | *0.0200* | **0.1000** | 1.5 |",
        "| unet | 0.0300 | failed | 3.0 |",
    ]


def test_the_leaderboard_has_the_papers_figures_and_ranks_beside_ours() -> None:
    rows = compare([result("lsm", 0.02, **DARCY), result("fno", 0.01, **DARCY)])
    assert leaderboard_table(rows, with_published=True).rows == (
        ("fno", "0.0100 (0.0108)", "1.0", "2.0"),
        ("lsm", "0.0200 (0.0065)", "2.0", "1.0"),
    )


def test_the_main_table_has_differences_ranks_and_costs() -> None:
    long = {**DARCY, "preset": "paper", "epochs": 500}
    rows = compare([result("lsm", 0.02, **long), result("fno", 0.01, **long)])
    costs = ("1,234", "6", "20", "1.5", "0.50", "300")
    assert comparison_table(rows).rows == (
        ("darcy (8×8)", "fno", "1", "0.01", "0.0108", "-7%", "2", *costs),
        ("darcy (8×8)", "lsm", "2", "0.02", "0.0065", "+208%", "1", *costs),
    )


@pytest.mark.parametrize("short", [{}, {"preset": "paper", "epochs": 60}, {"epochs": 500}])
def test_a_run_of_other_data_or_length_has_no_difference_from_the_paper(short: dict) -> None:
    (row,) = comparison_table(compare([result("lsm", 0.02, **{**DARCY, **short})])).rows
    assert row[4:6] == ("0.0065", "–")


def test_a_benchmark_without_published_figures_has_dashes_for_them() -> None:
    (row,) = comparison_table(compare([result(benchmark="ninth")])).rows
    assert row[:7] == ("ninth (256)", "lsm", "1", "0.02", "–", "–", "–")
    (row,) = leaderboard_table(compare([result(benchmark="ninth")]), with_published=True).rows
    assert row == ("lsm", "0.0200 (–)", "1.0", "–")


def test_runs_that_all_failed_have_a_row_without_figures() -> None:
    table = comparison_table(compare([failure()]))
    assert table.rows[0][2:4] == ("–", "failed")
    assert "predicting the mean" not in table.caption


def test_a_table_has_one_line_a_row_in_every_form() -> None:
    table = comparison_table(compare([result("lsm", 0.02), result("fno", 0.01)]))
    line = (
        "| burgers (256) | fno | 1 | **0.01** | 0.00332 | – | 2 "
        "| 1,234 | 6 | 20 | 1.5 | 0.50 | 300 |"
    )
    assert line in table.markdown()
    lines = table.text().splitlines()
    assert len(lines) == 5
    assert lines[2].split() == line.replace("|", "").replace("*", "").split()
    assert lines[4].endswith("training targets gives: burgers (256) 1.000.")


def test_what_a_run_rests_on_is_told_and_why_one_failed() -> None:
    finished, lost = provenance_table([result(), failure(error="Diverged: nan")]).rows
    assert finished[:8] == ("burgers", "lsm", "0", "10", "2", "6", "20", "1.5")
    assert finished[10:] == (
        *(f"generated {'d' * 16}", "c" * 16),
        *("cpu, any, torch 2", "2026-11-16T12:00:00+00:00"),
    )
    assert lost[-1] == "failed: Diverged: nan"


def test_a_table_refuses_a_row_of_another_length() -> None:
    with pytest.raises(ValueError, match="a row has 1 cells for 2 headings"):
        Table(headings=("a", "b"), rows=(("1",),))


def test_words_wrap_on_a_page_and_come_last_on_a_terminal():
    lines = [
        {"model": "a", "said": "much", "error": "0.1"},
        {"model": "b", "said": "", "error": "2"},
    ]
    table = table_of(lines, words=("said",))
    assert '<td class="words">much</td>' in table.html()
    assert table.text().splitlines() == [
        "model  error  said",
        "─────  ─────  ────",
        "a        0.1  much",
        "b          2",
    ]
