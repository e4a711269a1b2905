from typing import Any

from lsm_core.reporting.comparison import compare
from lsm_core.reporting.leaderboard import leaderboard, ranks
from tests.lsm_core.reporting.test_reporting import result


def on(benchmark: str, model: str, error: float) -> dict[str, Any]:
    return {**result(model, error), "benchmark": benchmark, "resolution": [8, 8]}


RESULTS = [
    on("darcy", "lsm", 0.01),
    on("darcy", "fno", 0.02),
    on("darcy", "unet", 0.03),
    on("pipe", "lsm", 0.2),
    on("pipe", "fno", 0.1),
    {**on("pipe", "unet", 0.0), "error": "Diverged: nan"},
]


def test_models_are_ranked_on_every_benchmark_and_failures_are_not() -> None:
    places = ranks(compare(RESULTS))
    assert places["darcy", "lsm"] == 1
    assert places["pipe", "fno"] == 1
    assert ("pipe", "unet") not in places


def test_the_table_marks_first_and_second_and_orders_by_mean_rank() -> None:
    lines = leaderboard(compare(RESULTS)).splitlines()
    assert lines[0] == "| model | darcy | pipe | mean rank |"
    assert lines[2:] == [
        "| lsm | **0.0100** | *0.2000* | 1.5 |",
        "| fno | *0.0200* | **0.1000** | 1.5 |",
        "| unet | 0.0300 | failed | 3.0 |",
    ]
