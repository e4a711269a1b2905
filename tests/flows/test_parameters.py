"""Parameters of flows, as Prefect's server looks at them when a run is submitted."""

from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from prefect import Flow
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.schema_tools.validation import ValidationError, validate

from flows.benchmark import lsm
from flows.cell import cell
from flows.parameters import TrainingSetting
from flows.prepare import prepare
from flows.retrain import retrain
from flows.studies import ablations, efficiency, study
from flows.train import train
from lsm_core.studies.catalogue import STUDIES
from lsm_core.training.config import TrainingConfig

REPOSITORY = Path(__file__).parents[2]

ONE = {"benchmarks": ["darcy"], "models": ["lsm"]}


@pytest.mark.parametrize(
    ("flow", "wrong", "said"),
    [
        (retrain, {"benchmark": "darcy", "n_new": -5}, "-5 is less than the minimum of 1"),
        (retrain, {"false_promotions": 7.0}, "7.0 is greater than or equal to"),
        (retrain, {"benchmark": "darcy", "least_gain": -1}, "-1 is less than the minimum of 0"),
        (retrain, {"benchmark": "My weather!"}, "'My weather!' is not valid under any of"),
        (train, {**ONE, "seeds": [-1]}, "-1 is less than the minimum of 0"),
        (train, {**ONE, "training": {"epochz": 3}}, "'epochz': 3"),
        (train, {"benchmarks": [], "models": ["lsm"]}, "should be non-empty"),
        (train, {**ONE, "ranks": 0}, "0 is less than the minimum of 1"),
        (lsm, {"seeds": []}, "should be non-empty"),
        (prepare, {"resolutions": [0]}, "0 is less than the minimum of 1"),
        (efficiency, {"sizes": [-64]}, "-64 is less than the minimum of 1"),
        (ablations, {"name": "ablations", "rows": []}, "should be non-empty"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(
    flow: Flow[..., Any], wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        validate(wrong, flow.parameters.model_dump(), raise_on_error=True)


def test_values_that_make_sense_are_taken() -> None:
    changes = {**ONE, "seeds": [0, 1], "training": {"epochs": 3, "fraction": 0.2}}
    for flow, given in ((train, changes), (retrain, {"benchmark": "darcy"}), (lsm, {})):
        validate(given, flow.parameters.model_dump(), raise_on_error=True)
        flow.validate_parameters(given)


def test_every_setting_of_training_may_be_changed() -> None:
    assert set(get_args(TrainingSetting)) == {field.name for field in fields(TrainingConfig)}


def test_every_study_that_is_deployed_is_one_by_the_name_of_its_flow() -> None:
    declared = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]
    studies = [each for each in declared if "name" in each.get("parameters", {})]
    for each in studies:
        flow = load_flow_from_entrypoint(each["entrypoint"], use_placeholder_flow=False)
        assert each["parameters"]["name"].startswith(flow.name)
        validate(each["parameters"], flow.parameters.model_dump(), raise_on_error=True)
    published = {name for name, study in STUDIES.items() if study.is_published}
    assert {each["parameters"]["name"] for each in studies} == published


@pytest.mark.parametrize("flow", [lsm, train, prepare, study, efficiency, retrain, cell])
def test_every_parameter_is_described_in_the_form_of_a_run(flow: Any) -> None:
    properties = flow.parameters.properties
    assert properties
    for name, shown in properties.items():
        assert len(shown.get("description", "")) > 10, f"{flow.name}: {name} is not described"
