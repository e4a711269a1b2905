from dataclasses import replace
from typing import get_args

import pytest
import torch

from lsm_core.experiments.applicability import applicable_models
from lsm_core.experiments.data_plan import DataPlan
from lsm_core.experiments.data_plans import data_plan
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.operator import build_operator
from lsm_core.experiments.presets import experiment
from lsm_core.names import BenchmarkName, ModelName, PresetName

CELLS = [
    pytest.param(benchmark, model, id=f"{benchmark}-{model}")
    for benchmark in get_args(BenchmarkName)
    for model in applicable_models(benchmark)
]


def maps_its_problem(cell: Experiment, device: str) -> bool:
    """Return whether a cell's operator maps its problem's inputs to its targets."""
    shape = cell.data.benchmark.shape
    with torch.device(device), torch.no_grad():
        predicted = build_operator(cell)(torch.rand(1, *shape.space, shape.n_inputs))
    return predicted.shape == (1, *shape.space, shape.n_outputs)


@pytest.mark.parametrize(("benchmark", "model"), CELLS)
def test_every_cell_has_an_operator_for_its_problem(
    benchmark: BenchmarkName, model: ModelName
) -> None:
    assert maps_its_problem(experiment("smoke", benchmark, model), "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("preset", [name for name in get_args(PresetName) if name != "smoke"])
@pytest.mark.parametrize(("benchmark", "model"), CELLS)
def test_every_cell_of_the_larger_presets_has_one_too(
    preset: PresetName, benchmark: BenchmarkName, model: ModelName
) -> None:
    # Shapes without numbers: the published sizes would take minutes.
    assert maps_its_problem(experiment(preset, benchmark, model), "meta")


def test_the_identity_follows_everything_that_decides_the_outcome() -> None:
    cell = experiment("smoke", "burgers", "lsm")
    others = [
        replace(cell, seed=1),
        replace(cell, dataset="another"),
        replace(cell, code="changed"),
        replace(cell, training=replace(cell.training, epochs=5)),
        replace(cell, data=replace(cell.data, n_train=41)),
        experiment("smoke", "burgers", "fno"),
        experiment("quick", "burgers", "lsm"),
    ]
    assert len({cell.identity, *(other.identity for other in others)}) == len(others) + 1
    assert replace(cell, seed=1).protocol == cell.protocol
    assert experiment("smoke", "burgers", "lsm").identity == cell.identity


def test_parts_draw_from_seeds_of_their_own() -> None:
    plan = data_plan("smoke", "burgers")
    seeds = [plan.seed_of(sample) for sample in range(sum(plan.split_sizes.values()))]
    assert len(set(seeds)) == len(seeds)
    larger = DataPlan(benchmark=plan.benchmark, n_train=100, n_validation=8, n_test=16)
    assert [larger.seed_of(i) for i in range(40)] == seeds[:40]
    assert [larger.seed_of(108 + i) for i in range(16)] == seeds[48:]
    with pytest.raises(IndexError, match="64 samples"):
        plan.seed_of(64)
