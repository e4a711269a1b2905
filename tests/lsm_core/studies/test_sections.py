import re
from typing import Any, get_args

import pytest

from lsm_core.names import StudyName
from lsm_core.reporting.document import Block, Picture
from lsm_core.reporting.protocol import protocol_table
from lsm_core.reporting.tables import Table
from lsm_core.result import Failure, Result
from lsm_core.studies.catalogue import study_blocks, study_cells
from tests.lsm_core.reporting.results import failure, result


def run(error: float, seed: int = 0, **changes: Any) -> Result:
    """Return a result as runs keep it."""
    return result(changes.pop("model", "lsm"), error, seed, **changes)


def lost(**changes: Any) -> Failure:
    return failure(error="Diverged", **changes)


def the_table(blocks: list[Block]) -> Table:
    (table,) = the_tables(blocks)
    return table


def the_tables(blocks: list[Block]) -> list[Table]:
    return [block for block in blocks if isinstance(block, Table)]


def names_of_axes(blocks: list[Block]) -> list[str]:
    svg = "".join(block.svg for block in blocks if isinstance(block, Picture))
    return re.findall(r'id="axis-name">\s*<text[^>]*>([^<]*)</text>', svg)


def test_variants_stand_beside_the_papers_and_beside_the_whole_model() -> None:
    at = {"benchmark": "darcy", "resolution": [8, 8]}
    blocks = study_blocks(
        "ablations",
        [
            run(0.02, setting="without patches", **at),
            run(0.01, setting="lsm", **at),
            lost(setting="fourier solver", **at),
        ],
    )
    assert the_table(blocks).rows == (
        ("without patches", "0.02", "0.0068", "–", "+100%", "+5%", "1,234"),
        ("lsm", "0.01", "0.0065", "–", "+0%", "+0%", "1,234"),
        ("fourier solver", "failed", "0.0073", "–", "–", "+12%", "–"),
    )
    assert "error / error of the whole model" in names_of_axes(blocks)
    assert blocks[-1] == (
        "Measured with darcy: 10 training samples, 2 epochs; 1 seed. The paper trains 500 epochs "
        "on its full data, 5 times."
    )


def test_sweeps_are_drawn_against_the_number_of_what_changes() -> None:
    at = {"benchmark": "elasticity_g", "resolution": [41, 41]}
    settings = {
        "2 tokens": 0.1,
        "4 tokens": 0.2,
        "16 basis operators": 0.3,
        "8 basis operators": 0.4,
    }
    failed = lost(setting="3 tokens", **at)
    runs = [failed, *(run(error, setting=name, **at) for name, error in settings.items())]
    blocks = study_blocks("hyperparameters", runs)
    rows = the_table(blocks).rows
    assert rows[0] == ("tokens", "2", "0.1", "0.0415", "–")
    assert rows[1] == ("tokens", "3", "failed", "0.0409", "–")
    assert [row[1] for row in rows] == ["2", "3", "4", "8", "16"]
    assert {"number of tokens", "number of basis operators"} <= set(names_of_axes(blocks))


def test_resolutions_are_columns_and_models_are_ranked_at_each() -> None:
    blocks = study_blocks(
        "resolutions-burgers",
        [
            run(0.02, resolution=[256]),
            run(0.04, seed=1, resolution=[256]),
            run(0.05, resolution=[128], model="fno"),
            run(0.01, resolution=[256], model="mwt"),
        ],
    )
    table, ranked = the_tables(blocks)
    assert table.headings == ("model", "128", "256")
    assert table.rows == (
        ("lsm", "–", "0.03 ± 0.014 (0.00123)"),
        ("fno", "0.05", "– (0.00332)"),
        ("mwt", "–", "0.01 (0.00199)"),
    )
    assert ranked.rows == (
        ("128", "fno", "1", "0.05", "–", "–", "–"),
        ("256", "lsm", "2", "0.03 ± 0.014", "0.00123", "–", "1"),
        ("256", "mwt", "1", "0.01", "0.00199", "–", "2"),
    )
    assert "points along an axis" in names_of_axes(blocks)


@pytest.mark.parametrize(("tuned", "verdict"), [(0.1, "beats"), (0.3, "does not beat")])
def test_the_transfer_says_whether_fine_tuning_is_better_with_the_least_data(
    tuned: float, verdict: str
) -> None:
    at = {"benchmark": "airfoil", "resolution": [8, 8]}
    blocks = study_blocks(
        "transfer",
        [
            *(run(0.2, seed, fraction=0.2, **at) for seed in (0, 1)),
            *(run(tuned, seed, fraction=0.2, source="s", **at) for seed in (0, 1)),
            run(0.15, fraction=1.0, **at),
            run(0.01, fraction=1.0, source="s", **at),
            run(0.9, benchmark="pipe", resolution=[8, 8]),
        ],
    )
    assert blocks[0] == (
        f"At 20% of the data, fine-tuning lsm {verdict} training from scratch: {tuned} ± 0 against "
        f"0.2 ± 0 over 2 seeds ({1 - tuned / 0.2:+.1%}; better in {2 * (tuned < 0.2)} of 2)."
    )
    gains, ranked = the_tables(blocks)
    rows = gains.rows
    assert rows[0][5:] == ("0.0166", "0.0131", "+21.1%")
    assert rows[1][2:5] == ("0.15", "0.01", "+93.3%")
    assert ranked.rows[2] == ("100%, from scratch", "lsm", "1", "0.15", "0.0059", "–", "1")
    assert ranked.rows[3][:6] == ("100%, fine-tuned", "lsm", "1", "0.01", "0.0055", "–")


@pytest.mark.parametrize("study", get_args(StudyName))
def test_a_study_that_was_cut_off_has_a_section(study: StudyName) -> None:
    cells = study_cells(study, "smoke", [0])
    results = [
        run(
            0.1,
            model=cell.experiment.model_name,
            benchmark=cell.experiment.data.benchmark.name,
            resolution=list(cell.experiment.data.benchmark.shape.space),
            setting=cell.setting,
            fraction=cell.experiment.training.fraction,
            source="s" if cell.experiment.start else None,
        )
        for cell in cells
    ]
    ways = {bool(one.source): one for one in results}
    for some in (*([one] for one in ways.values()), results[: len(results) // 2], results[-1:]):
        assert study_blocks(study, some)
        head = ("model", "benchmark", "resolution", "setting", "fraction", "source")
        failures = [lost(**{name: getattr(one, name) for name in head}) for one in some]
        assert study_blocks(study, failures)


def test_fine_tuning_alone_is_shown_without_its_source() -> None:
    at = {"benchmark": "airfoil", "resolution": [8, 8], "fraction": 0.2}
    blocks = study_blocks(
        "transfer",
        [
            run(0.1, source="s", setting="lsm fine-tuned, 20% of the data", **at),
            run(0.9, benchmark="pipe", resolution=[8, 8]),
        ],
    )
    assert the_tables(blocks)[0].rows == (
        ("lsm", "20%", "–", "0.1", "–", "0.0166", "0.0131", "+21.1%"),
    )


def test_seeds_are_compared_with_the_papers_deviation() -> None:
    at = {"benchmark": "darcy", "resolution": [8, 8]}
    blocks = study_blocks("stability", [run(e, s, **at) for s, e in enumerate((0.1, 0.2, 0.3))])
    (row,) = the_table(blocks).rows
    assert row[:6] == ("darcy", "lsm", "3", "0.2000", "0.0065", "–")
    assert row[6:] == ("0.1000", "0.0001", "50.0%", "0.1000 to 0.3000")


def test_a_study_that_is_not_known_has_a_table_and_curves() -> None:
    blocks = study_blocks("burgers-forms", [run(0.1, setting="smooth form"), run(0.2)])
    assert [row[1] for row in the_table(blocks).rows] == ["smooth form", "lsm"]
    assert "epoch" in names_of_axes(blocks)


def test_the_protocol_stands_beside_the_papers() -> None:
    at = {"benchmark": "darcy", "resolution": [8, 8]}
    (row,) = protocol_table([run(0.02, **at), run(0.01, model="fno", **at)]).rows
    assert row == (
        "darcy",
        "10 (1000)",
        "4 (200)",
        "8×8 (85×85)",
        "2 (500)",
        "4 (20)",
        "8-16 (32-64-128-128-128)",
        "1 (5)",
    )


def test_the_protocol_of_a_benchmark_that_the_paper_has_not_has_dashes() -> None:
    (row,) = protocol_table([run(0.02, benchmark="ninth")]).rows
    assert row[:4] == ("ninth", "10 (–)", "4 (–)", "256 (–)")


def test_budgets_are_drawn_against_the_seconds_of_training() -> None:
    runs = [
        run(error, seed, epochs=epochs, seconds_per_epoch=0.5, setting=f"fno, {epochs} epochs")
        for epochs, errors in ((2, (0.3, 0.5)), (8, (0.1, 0.1)))
        for seed, error in enumerate(errors)
    ]
    blocks = study_blocks("budgets", [*runs, lost(setting="fno, 4 epochs")])
    assert "seconds of training [s]" in names_of_axes(blocks)
    rows = the_table(blocks).rows
    assert [row[1] for row in rows] == ["fno, 2 epochs", "fno, 8 epochs", "fno, 4 epochs"]
    assert "0.4" in rows[0][3]
    assert rows[2][3] == "failed"


def test_curves_are_of_all_seeds_not_of_the_first() -> None:
    runs = [run(0.01, seed, setting="whole", epochs=2) for seed in range(2)]
    (picture,) = [
        block for block in study_blocks("ablations-ours", runs) if isinstance(block, Picture)
    ]
    assert "whole, 2 seeds" in picture.svg
