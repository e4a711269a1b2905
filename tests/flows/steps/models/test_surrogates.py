import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from flows.errors import BadInput
from flows.steps.models.surrogates import trained_run
from lsm_core.experiments.plans.extended import benchmark_from_plain
from lsm_core.problems.fields import stack_channels
from lsm_core.surrogates.predictor import TrainedModel
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from tests.flows.steps.trained_runs import cell, random_samples, write_run

SMALL = {
    "burgers": {"resolution": 32},
    "darcy": {"resolution": 20},
    "navier_stokes": {"resolution": 16},
    "elasticity_p": {},
    "elasticity_g": {},
    "plasticity": {},
    "airfoil": {},
    "pipe": {},
}


@pytest.fixture
def root(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path))


@pytest.mark.parametrize("model", ["lsm", "fno"])
@pytest.mark.parametrize("name", SMALL)
def test_the_model_of_a_run_is_rebuilt_exactly(name: str, model: str, root: Location) -> None:
    made = cell(name, model, **SMALL[name])
    expected = write_run(made, root)
    run = trained_run(made.identity, root)
    assert run.benchmark == made.data.benchmark
    assert run.predictor.model.model == made.model
    assert TrainedModel.from_plain(json.loads(json.dumps(run.predictor.model.plain()))) == (
        run.predictor.model
    )
    rebuilt = run.predictor.surrogate()
    assert rebuilt.state_dict().keys() == expected.state_dict().keys()
    arrays = random_samples(made.data.benchmark, seed=7)
    inputs = run.benchmark.with_role("input")
    fields = torch.tensor(stack_channels(arrays, inputs, run.predictor.model.grid))
    with torch.no_grad():
        assert torch.equal(rebuilt(fields), expected(fields))
    predicted = run.predictor(arrays)
    assert {n: v.shape for n, v in predicted.items()} == {
        v.name: (3, *v.shape) for v in run.benchmark.with_role("target")
    }


def test_a_model_predicts_at_another_grid(root: Location) -> None:
    made = cell("burgers", "fno", resolution=32)
    write_run(made, root)
    predictor = trained_run(made.identity, root).predictor
    fine = torch.sin(2 * torch.pi * torch.arange(64) / 64).numpy()[None]
    coarse, twice = predictor({"initial": fine[:, ::2]}), predictor({"initial": fine})
    assert twice["final"].shape == (1, 64)
    # The appended coordinates differ a little between the grids, everything else is the same.
    assert abs(twice["final"][:, ::2] - coarse["final"]).max() < 0.05 * abs(coarse["final"]).max()


def test_pointwise_statistics_tie_a_model_to_its_grid(root: Location) -> None:
    made = cell("darcy", "fno", resolution=20)
    assert made.training.input_normalization == "pointwise"
    write_run(made, root)
    predictor = trained_run(made.identity, root).predictor
    assert predictor.supports({"x": 20, "y": 20})
    assert not predictor.supports({"x": 24, "y": 24})
    with pytest.raises(ValueError, match="point by point on 20 x 20 points and cannot predict"):
        predictor({"coefficient": random_samples(made.data.benchmark)["coefficient"][:, :18, :18]})


def test_a_run_that_is_not_there_is_said(root: Location) -> None:
    with pytest.raises(BadInput, match="there is no finished run 0123"):
        trained_run("0123", root)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": {"width": 16}}, "lack n_modes, n_layers, head_width, padding"),
        ({"model_name": "gpt"}, "there is no model 'gpt'; known are lsm"),
        ({"data": {"benchmark": "heat", "parameters": {}}}, "there is no benchmark 'heat'"),
    ],
)
def test_settings_of_another_version_are_refused_in_a_sentence(
    change: dict[str, object], sentence: str, root: Location
) -> None:
    made = cell("burgers", "fno", resolution=32)
    write_run(made, root)
    checkpoints = Checkpoints(root / "checkpoints" / made.identity)
    result = checkpoints.result()
    assert result is not None
    checkpoints.write_result({**result, "settings": {**result["settings"], **change}})
    with pytest.raises(BadInput, match=sentence) as caught:
        trained_run(made.identity, root)
    assert made.identity in str(caught.value)


def test_weights_of_another_model_are_refused(root: Location) -> None:
    made = cell("burgers", "fno", resolution=32)
    write_run(made, root)
    other = replace(made, experiment=replace(made.experiment, model=replace(made.model, width=8)))
    weights = {f"model.{n}": v for n, v in write_run(other, root).state_dict().items()}
    content = save(weights, {"state": json.dumps({})})
    Checkpoints(root / "checkpoints" / made.identity).save(5, content)
    with pytest.raises(BadInput, match="cannot be rebuilt"):
        trained_run(made.identity, root)


def test_every_benchmark_comes_back_from_plain_data() -> None:
    for name, parameters in SMALL.items():
        plan = cell(name, **parameters).data
        assert benchmark_from_plain(json.loads(json.dumps(plan.to_plain()))) == plan.benchmark
