"""Recipes name datasets: a changed one would have all of that data generated again."""

import json
from pathlib import Path
from typing import get_args

from flows.steps.data.datasets import recipe_of
from lsm_core.experiments.protocols import data_plan
from lsm_core.names import BenchmarkName, PresetName

RECIPES = json.loads(Path(__file__).with_name("recipes.json").read_text())
"""Those of 17 November 2026. One that changes on purpose is changed here, and in the CHANGELOG."""


def test_every_preset_names_the_datasets_that_it_always_named() -> None:
    paper = data_plan("paper", "darcy")
    plans = {
        f"darcy at {size}": paper.at_resolution(size) for size in (32, 64, 128, 256, 512, 1024)
    }
    for preset in get_args(PresetName):
        for benchmark in get_args(BenchmarkName):
            plans[f"{preset}/{benchmark}"] = data_plan(preset, benchmark)
    assert {name: recipe_of(plan) for name, plan in plans.items()} == RECIPES
