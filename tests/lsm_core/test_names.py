"""The names users see are exactly what exists."""

from typing import get_args

from lsm_core.benchmarks.catalogue import BENCHMARKS, data_card
from lsm_core.experiments.data_plans import DATA_PLANS
from lsm_core.models.catalogue import MODELS
from lsm_core.names import PRESET_PURPOSES, BenchmarkName, ModelName, PresetName


def test_every_benchmark_has_a_class_of_its_name_a_plan_and_a_card() -> None:
    assert tuple(BENCHMARKS) == get_args(BenchmarkName)
    assert set(DATA_PLANS) == set(BENCHMARKS)
    for name, benchmark in BENCHMARKS.items():
        assert benchmark.name == name
        assert data_card(name).startswith("# ")


def test_every_model_and_preset_is_there() -> None:
    assert tuple(MODELS) == get_args(ModelName)
    presets = set(get_args(PresetName))
    assert set(PRESET_PURPOSES) == presets
    for plans in DATA_PLANS.values():
        assert set(plans) == presets
