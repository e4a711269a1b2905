"""Names of runs in Prefect's lists."""

import pytest
from prefect.utilities.names import generate_slug

from flows.benchmark import _name as benchmark_name
from flows.engine.run_names import is_made_up, some


def test_names_that_prefect_makes_up_are_told_from_those_that_people_give() -> None:
    for _ in range(200):
        assert is_made_up(generate_slug(2))
    for given in ("my-run", "nightly", "benchmark-quick", "paper tables 3-4", "lsm-fno"):
        assert not is_made_up(given)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (None, "all models"),
        (["lsm", "fno"], "lsm, fno"),
        (["lsm", "fno", "unet", "mwt"], "4 models"),
    ],
)
def test_a_few_names_are_listed_and_many_counted(names: list[str] | None, text: str) -> None:
    assert some(names, "all models") == text


def test_a_benchmark_says_what_it_compares() -> None:
    chosen = {"preset": "quick", "models": ["lsm"], "benchmarks": None, "official": False}
    assert benchmark_name(chosen) == "benchmark-quick: lsm on all problems"
    assert benchmark_name({**chosen, "official": True}).startswith("benchmark-official-quick")
