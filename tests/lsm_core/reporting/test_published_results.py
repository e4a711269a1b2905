from typing import Any

import pytest

from lsm_core.reporting.published_results import (
    published_ablation,
    published_error,
    published_for,
    published_sweep,
    published_transfer,
)
from tests.lsm_core.reporting.results import result


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
    assert published_for(result(**{"benchmark": "airfoil", **changes})) == expected


def test_published_figures_are_looked_up_where_the_paper_has_them() -> None:
    assert published_error("burgers", "lsm", (8192,)) == 0.00105
    assert published_error("burgers", "lsm", (100,)) is None
    assert published_ablation("darcy", "without patches") == 0.0068
    assert published_ablation("darcy", "fourier solver") == 0.0073
    assert published_ablation("airfoil", "fourier solver") is None
    assert published_sweep("scales") == {3: 0.0428, 4: 0.0412, 5: 0.0408, 6: 0.04, 7: 0.0402}
    scratch, tuned = published_transfer("lsm")
    assert (scratch[0.2], tuned[0.2]) == (0.0166, 0.0131)
