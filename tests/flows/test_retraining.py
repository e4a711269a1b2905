"""Champion and challenger on a real registry: a server on loopback."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.errors import BadInput
from flows.steps import datasets
from flows.steps.registration import register_run
from flows.steps.retraining import LOCKED, challenger_experiment, experiment_of, judge
from lsm_core.experiments.data_plan import DataPlan
from lsm_core.experiments.experiment import Experiment
from storage.checkpoints import Checkpoints
from storage.location import Location
from storage.model_registry import ModelRegistry
from tests.flows.trained_runs import cell, write_run
from tests.storage.mlflow_server import record_run, running_server

NAME = "lsm-burgers"
PARAMETERS = {"resolution": 32, "solver_points": 64, "solver_steps": 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def root(folder: Path) -> Location:
    return Location.parse(str(folder))


def written(plan: DataPlan, root: Location) -> Location:
    for index in datasets.begin(plan, root):
        datasets.generate_block(plan, root, index)
    return datasets.finish(plan, root).location


@pytest.fixture(scope="module")
def dataset(root: Location) -> Location:
    return written(replace(cell("burgers", **PARAMETERS).data, n_train=4, n_validation=2), root)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(tmp_path_factory.mktemp("server")) as address:
        yield address


OFFSETS = {"usual": 1.0, "equal": 1.0, "worse": 2.0, "better": 0.1}
"""Models that predict nearly one value everywhere: the further from zero, the worse."""


@pytest.fixture(scope="module")
def versions(server: str, root: Location) -> dict[str, int]:
    """Return the numbers of registered models, the first of them the champion."""
    numbers = {}
    for seed, (quality, offset) in enumerate(OFFSETS.items()):
        made: Experiment = cell("burgers", "fno", seed, **PARAMETERS)
        write_run(made, root, {"outputs.mean": offset, "outputs.std": 1e-3})
        record_run(server, Path(str(root)), made.identity)
        numbers[quality] = register_run(made.identity, root, server).number
    return numbers


@pytest.fixture
def registry(server: str, versions: dict[str, int]) -> ModelRegistry:
    """Return the registry with the usual champion."""
    opened = ModelRegistry(server)
    opened.set_alias(NAME, "champion", versions["usual"])
    return opened


def test_a_better_challenger_is_promoted(
    registry: ModelRegistry, versions: dict[str, int], dataset: Location
) -> None:
    registry.set_alias(NAME, "challenger", versions["better"])
    verdict = judge("burgers", dataset, registry.uri)
    assert verdict["promoted"]
    assert verdict["reason"].startswith("better: mean error ")
    assert (verdict["champion"], verdict["challenger"]) == (versions["usual"], versions["better"])
    assert verdict["n_samples"] == 16
    assert verdict["challenger_error"] < 0.5 * verdict["champion_error"]
    promoted = registry.find(f"{NAME}@champion")
    assert promoted.number == versions["better"]
    assert promoted.tags["judged/against"] == str(versions["usual"])
    assert promoted.tags["judged/reason"] == verdict["reason"]
    assert registry.with_alias(NAME, "challenger") is None


@pytest.mark.parametrize("quality", ["equal", "worse"])
def test_an_equal_or_worse_challenger_is_not(
    quality: str, registry: ModelRegistry, versions: dict[str, int], dataset: Location
) -> None:
    registry.set_alias(NAME, "challenger", versions[quality])
    verdict = judge("burgers", dataset, registry.uri)
    assert not verdict["promoted"]
    assert registry.find(f"{NAME}@champion").number == versions["usual"]
    kept = registry.find(f"{NAME}/{versions[quality]}")
    assert kept.aliases == ()
    assert kept.tags["judged/promoted"] == "False"
    assert kept.tags["judged/reason"] == verdict["reason"]


@pytest.mark.parametrize("broken", ["download", "set_tags", "set_alias"])
def test_a_crash_in_the_middle_changes_nothing(
    broken: str,
    registry: ModelRegistry,
    versions: dict[str, int],
    dataset: Location,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry.set_alias(NAME, "challenger", versions["better"])

    class Killed(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ModelRegistry, broken, dies)
        with pytest.raises(Killed):
            judge("burgers", dataset, registry.uri)
    assert registry.find(f"{NAME}@champion").number == versions["usual"]
    assert registry.find(f"{NAME}@challenger").number == versions["better"]
    assert judge("burgers", dataset, registry.uri)["promoted"]
    assert registry.find(f"{NAME}@champion").number == versions["better"]


def test_the_test_samples_are_locked(
    registry: ModelRegistry, versions: dict[str, int], dataset: Location, root: Location
) -> None:
    registry.set_alias(NAME, "challenger", versions["equal"])
    judge("burgers", dataset, registry.uri)
    locked = registry.name_tags(NAME)[LOCKED]
    plan = replace(cell("burgers", **PARAMETERS).data, n_train=6, n_validation=2)
    registry.set_alias(NAME, "challenger", versions["better"])
    with pytest.raises(BadInput, match="not those by which models of burgers are judged"):
        judge("burgers", written(replace(plan, n_test=15), root), registry.uri)
    assert registry.find(f"{NAME}@champion").number == versions["usual"]
    # More training samples leave the test samples as they are.
    assert judge("burgers", written(plan, root), registry.uri)["promoted"]
    assert registry.name_tags(NAME)[LOCKED] == locked


def test_judging_needs_two_models(registry: ModelRegistry, dataset: Location) -> None:
    with pytest.raises(BadInput, match="there is no lsm-burgers@challenger to judge"):
        judge("burgers", dataset, registry.uri)


def test_a_challenger_starts_from_the_champion_with_more_samples(
    registry: ModelRegistry, root: Location
) -> None:
    with pytest.raises(BadInput, match="there is no champion lsm-darcy"):
        challenger_experiment("darcy", 8, root, registry.uri)
    made = cell("burgers", "fno", 0, **PARAMETERS)
    result = Checkpoints(root / "checkpoints" / made.identity).result()
    assert result is not None
    assert experiment_of(result).protocol == made.protocol
    planned = challenger_experiment("burgers", 8, root, registry.uri)
    assert planned.data.n_train == made.data.n_train + 8
    assert planned.data.n_test == made.data.n_test
    assert planned.start is not None
    assert planned.start.identity == made.identity
    assert planned.model == made.model
    with pytest.raises(BadInput, match="needs new samples"):
        challenger_experiment("burgers", 0, root, registry.uri)
