import json
from dataclasses import replace
from typing import get_args

import pytest
import torch

from lsm_core.experiments.experiment import BoundExperiment, Experiment, Start
from lsm_core.experiments.plans import AddedSamples, DataPlan, OfficialPlan, extended
from lsm_core.experiments.presets import experiment
from lsm_core.experiments.protocols import data_plan
from lsm_core.names import BenchmarkName, ModelName, PresetName
from lsm_core.surrogates.operator import build_operator
from tests.lsm_core.experiments.learning import applicable_models

CELLS = [
    pytest.param(benchmark, model, id=f"{benchmark}-{model}")
    for benchmark in get_args(BenchmarkName)
    for model in applicable_models(benchmark)
]


def maps_its_problem(cell: Experiment, device: str) -> bool:
    """Return whether a cell's operator maps its problem's inputs to its targets."""
    shape = cell.data.benchmark.shape
    with torch.device(device), torch.no_grad():
        predicted = build_operator(cell.model, cell.data.benchmark)(
            torch.rand(1, *shape.space, shape.n_inputs)
        )
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
    made = experiment("smoke", "burgers", "lsm")
    cell = BoundExperiment(**vars(made), dataset="data", code="code")
    others = [
        replace(cell, dataset="another"),
        replace(cell, code="changed"),
        replace(cell, source="a run"),
        replace(cell, source=cell),
        *(
            replace(cell, **vars(other))
            for other in (
                replace(made, seed=1),
                replace(made, training=replace(made.training, epochs=5)),
                replace(made, data=replace(made.data, n_train=41)),
                replace(made, start=Start(source=made)),
                replace(made, start=Start(source=made, frozen=("lift",))),
                experiment("smoke", "burgers", "fno"),
                experiment("quick", "burgers", "lsm"),
            )
        ),
    ]
    assert len({cell.identity, *(other.identity for other in others)}) == len(others) + 1
    assert replace(made, seed=1).protocol == made.protocol
    again = experiment("smoke", "burgers", "lsm")
    assert replace(cell, **vars(again)).identity == cell.identity
    assert not hasattr(made, "identity")


@pytest.mark.parametrize(("benchmark", "model"), CELLS)
def test_an_experiment_comes_back_from_json(benchmark: BenchmarkName, model: ModelName) -> None:
    made = experiment("smoke", benchmark, model, seed=3)
    assert Experiment.from_plain(json.loads(json.dumps(made.to_plain())), seed=3) == made


def test_an_experiment_on_any_kind_of_data_comes_back() -> None:
    made = experiment("smoke", "burgers", "fno")
    official = OfficialPlan(**vars(made.data), stride=2, recipe="r", dataset="d.zarr")
    added = (AddedSamples(digest="a", n_samples=3), AddedSamples(digest="b", n_samples=2))
    for data in (official, extended(made.data, added), extended(official, added)):
        moved = replace(made, data=data)
        assert Experiment.from_plain(moved.to_plain()) == moved


def test_parts_draw_from_seeds_of_their_own() -> None:
    plan = data_plan("smoke", "burgers")
    seeds = [plan.seed_of(sample) for sample in range(sum(plan.split_sizes.values()))]
    assert len(set(seeds)) == len(seeds)
    larger = DataPlan(benchmark=plan.benchmark, n_train=100, n_validation=8, n_test=16)
    assert [larger.seed_of(i) for i in range(40)] == seeds[:40]
    assert [larger.seed_of(108 + i) for i in range(16)] == seeds[48:]
    with pytest.raises(IndexError, match="64 samples"):
        plan.seed_of(64)
