from dataclasses import replace
from typing import get_args

import pytest
import torch

from lsm_core.experiments.data_plan import DataPlan
from lsm_core.experiments.data_plans import data_plan
from lsm_core.experiments.operator import build_operator
from lsm_core.experiments.presets import experiment
from lsm_core.names import BenchmarkName, ModelName, PresetName


@pytest.mark.parametrize("preset", get_args(PresetName))
@pytest.mark.parametrize("benchmark", get_args(BenchmarkName))
@pytest.mark.parametrize("model", get_args(ModelName))
def test_every_cell_has_an_operator_for_its_problem(
    preset: PresetName, benchmark: BenchmarkName, model: ModelName
) -> None:
    shape = (cell := experiment(preset, benchmark, model)).data.benchmark.shape
    # Shapes without numbers: the published sizes would take minutes.
    device = "cpu" if preset == "smoke" else "meta"
    with torch.device(device), torch.no_grad():
        field = torch.zeros(2, *shape.space, shape.n_inputs)
        predicted = build_operator(cell)(field)
    assert predicted.shape == (2, *shape.space, shape.n_outputs)


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
