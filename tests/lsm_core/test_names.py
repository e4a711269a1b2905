"""The names users see are exactly what exists."""

from typing import get_args

from lsm_core.benchmarks.catalogue import BENCHMARKS, data_card
from lsm_core.experiments.protocols import PROTOCOLS
from lsm_core.models.catalogue import MODELS
from lsm_core.names import PRESET_PURPOSES, BenchmarkName, ModelName, PresetName


def test_every_benchmark_has_a_class_of_its_name_a_plan_and_a_card() -> None:
    assert tuple(BENCHMARKS) == get_args(BenchmarkName)
    assert tuple(PROTOCOLS) == tuple(BENCHMARKS)
    for name, benchmark in BENCHMARKS.items():
        assert benchmark.name == name
        assert data_card(name).startswith("# ")


def test_every_model_and_preset_is_there() -> None:
    assert tuple(MODELS) == get_args(ModelName)
    presets = set(get_args(PresetName))
    assert set(PRESET_PURPOSES) == presets
    for name, protocol in PROTOCOLS.items():
        assert set(protocol.plans) == presets
        assert {type(plan.benchmark) for plan in protocol.plans.values()} == {BENCHMARKS[name]}
