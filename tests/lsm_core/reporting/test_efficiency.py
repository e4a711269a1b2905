from typing import Any

from lsm_core.reporting.efficiency import efficiency_table


def cost(size: int) -> dict[str, Any]:
    return {
        "model": "lsm",
        "form": "paper",
        "size": size,
        "n_parameters": 2_001_921,
        "forward_flops": 10**9,
        "saved_bytes": 2**20,
        "peak_bytes": 2**22,
        "step_seconds": (size / 128) ** 2,
    }


def test_costs_stand_beside_the_papers_with_their_growth() -> None:
    lines = efficiency_table([cost(64), cost(128), cost(256)]).splitlines()
    assert lines[2].split() == [
        "lsm",
        "(paper)",
        "128",
        "2,001,921",
        "1.00",
        "1",
        "4",
        "1.0000",
        "0.0359",
    ]
    assert lines[-1] == "lsm (paper): seconds grow as points^1.00 from 128 to 256"


def test_a_size_for_which_the_paper_ran_out_of_memory_has_a_dash() -> None:
    line = efficiency_table([{**cost(1024), "model": "swin", "form": "release"}]).splitlines()[1]
    assert line.split()[-1] == "–"
