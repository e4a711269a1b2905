"""A larger dataset takes over the samples of a smaller one, and only those that are the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.steps.data import datasets
from lsm_core.benchmarks.burgers import Burgers
from lsm_core.experiments.plans import DataPlan
from storage.location import Location
from tests.flows.steps.data.generation import generated
from tests.flows.steps.data.test_datasets import PLAN, files, make

LARGER = replace(PLAN, n_train=PLAN.n_train + 5)


def solved_seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets every seed that is solved from now on."""
    solved: list[int] = []
    generate = Burgers.generate_many

    def counted(self: Burgers, seeds: Any) -> Any:
        solved.extend(seeds)
        return generate(self, seeds)

    monkeypatch.setattr(Burgers, "generate_many", counted)
    datasets._relatives.cache_clear()
    return solved


def made(plan: DataPlan, root: Location) -> Path:
    place = generated(plan, root).location.local_path
    assert place is not None
    return place


def test_only_new_seeds_are_solved_and_the_bytes_are_those_of_solving_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = files(made(LARGER, Location.parse(str(tmp_path / "whole"))))
    root = Location.parse(str(tmp_path / "grown"))
    make(root)
    solved = solved_seeds(monkeypatch)
    assert files(made(LARGER, root)) == whole
    assert solved == list(range(PLAN.n_train, LARGER.n_train))


def test_samples_of_another_problem_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Location.parse(str(tmp_path))
    make(root)
    other = replace(LARGER, benchmark=replace(PLAN.benchmark, viscosity=0.02))
    solved = solved_seeds(monkeypatch)
    made(other, root)
    assert len(solved) == sum(other.split_sizes.values())


def test_a_dataset_that_cannot_be_read_is_left_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = files(made(LARGER, Location.parse(str(tmp_path / "whole"))))
    root = Location.parse(str(tmp_path / "grown"))
    place = made(PLAN, root)
    chunks = [path for path in (place / "final" / "c").rglob("*") if path.is_file()]
    for chunk in chunks:
        chunk.write_bytes(b"\0" * chunk.stat().st_size)
    datasets._relatives.cache_clear()
    assert files(made(LARGER, root)) == whole
