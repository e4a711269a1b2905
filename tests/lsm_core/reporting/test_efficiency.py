from typing import Any

from lsm_core.reporting.comparison import compare
from lsm_core.reporting.document import Picture
from lsm_core.reporting.efficiency import (
    Cost,
    efficiency_blocks,
    efficiency_table,
    scatter_pictures,
)
from lsm_core.reporting.published_results import efficiency_models
from lsm_core.reporting.tables import Table
from tests.lsm_core.reporting.results import failure, result


def cost(size: int, model: str = "lsm", form: str = "paper", **changes: Any) -> Cost:
    plain = {
        "model": model,
        "form": form,
        "size": size,
        "n_parameters": 2_001_921,
        "forward_flops": 10**9,
        "saved_bytes": 2**20,
        "peak_bytes": 2**22,
        "step_seconds": (size / 128) ** 2,
    }
    return Cost.from_plain({**plain, **changes})


def test_costs_stand_beside_the_papers_with_their_growth() -> None:
    lines = efficiency_table([cost(64), cost(128), cost(256)]).splitlines()
    measured = ["lsm", "(paper)", "128", "1", "1.0000", "0.0359", "1", "4", "1679", "1", "1.00"]
    assert lines[3].split() == measured
    assert lines[-2].split() == ["lsm", "(paper)", "2,001,921", "2,002,000", "-0%", "1.0"]
    assert lines[-1] == "lsm (paper): seconds grow as points^1.00 from 128 to 256"


def test_a_size_for_which_the_paper_ran_out_of_memory_has_a_dash() -> None:
    line = efficiency_table([cost(1024, "swin", "release")]).splitlines()[2].split()
    assert line[5:7] == ["–", "–"]
    assert line[8] == "–"


def test_costs_are_read_back_and_so_are_those_of_before_machines_were_named() -> None:
    new = cost(64, machine="one", code="c", measured="today")
    assert Cost.from_plain(new.to_plain()) == new
    old = {k: v for k, v in new.to_plain().items() if k not in ("machine", "code", "measured")}
    assert Cost.from_plain({**old, "more": 1}) == cost(64)


def test_models_are_ranked_among_those_of_their_size_and_by_their_errors() -> None:
    fno = cost(64, "fno", "release", step_seconds=0.1)
    rows = {"quick": compare([result("lsm", 0.02), result("fno", 0.01)])}
    sizes, costs, *_ = efficiency_blocks([cost(64), fno, cost(128)], rows)
    assert isinstance(sizes, Table)
    assert isinstance(costs, Table)
    assert sizes.headings[-2:] == ("mean rank, quick", "mean rank, paper")
    assert [row[-2] for row in sizes.rows] == ["2.0", "1.0"]
    assert [(row[2], row[5]) for row in costs.rows] == [("2", "2"), ("1", "1"), ("1", "1")]


def test_every_machine_has_a_table_of_its_own() -> None:
    places = ({"device": "cpu", "machine": "one"}, {"device": "cuda", "machine": "other"})
    blocks = efficiency_blocks([cost(64, **place) for place in places])
    captions = [block.caption for block in blocks if isinstance(block, Table | Picture)]
    assert sum("cpu (one)" in caption for caption in captions) == 2
    assert sum("cuda (other)" in caption for caption in captions) == 2


def test_the_whole_table_of_the_paper_can_be_drawn() -> None:
    costs = [cost(size, model, "release") for model in efficiency_models() for size in (64, 128)]
    assert len(efficiency_models()) == 10
    blocks = efficiency_blocks(costs)
    assert sum(isinstance(block, Picture) for block in blocks) == 1


def test_errors_are_drawn_against_time_where_two_models_are_finished() -> None:
    rows = compare([result("lsm"), result("fno"), failure("unet"), result(benchmark="darcy")])
    (picture,) = scatter_pictures(rows, "smoke")
    assert picture.caption.startswith("burgers, preset smoke: ")
    assert "seconds an epoch [s]" in picture.svg
