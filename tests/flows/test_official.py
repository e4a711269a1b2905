"""Generated data, written as the official files are, comes back through the official way."""

from pathlib import Path

import numpy as np
import pytest

from flows.steps import datasets
from flows.steps.data_report import write_data_report
from flows.steps.official import export, fetch_and_convert
from lsm_core.experiments.data_plans import data_plan
from lsm_core.names import BenchmarkName
from storage.dataset_reader import open_dataset
from storage.location import Location


@pytest.mark.parametrize("name", ["burgers", "darcy", "elasticity_g"])
def test_exported_files_become_the_same_dataset(name: BenchmarkName, tmp_path: Path) -> None:
    plan = data_plan("smoke", name)
    here, there = (Location.parse(str(tmp_path / place)) for place in ("here", "there"))
    for index in datasets.begin(plan, here):
        datasets.generate_block(plan, here, index)
    ours = datasets.finish(plan, here)
    files = export(ours, tmp_path / "files")
    assert files
    mirror = str(tmp_path / "files")
    notes: list[str] = []

    def report(name: str, done: int, total: int, note: str) -> None:
        notes.append(name)

    place = fetch_and_convert(name, there, [mirror], None, report, n_workers=1)
    theirs = open_dataset(place)
    names = [v.name for v in plan.benchmark.variables if v.role in ("input", "target")]
    for split in ("train", "validation", "test"):
        expected = ours.part(split, names)[:]
        found = theirs.part(split, names)[:]
        for variable in names:
            np.testing.assert_array_equal(found[variable], expected[variable])
    assert notes
    page = write_data_report(here, "smoke").read_bytes().decode()
    assert f"({name})" in page
    assert page.count("<svg") == 1
