"""Champion and challenger on a real registry: a server on loopback."""

import os
import signal
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.errors import BadInput
from flows.steps.models.champions import TEST_SAMPLES, promote
from flows.steps.models.judgement import (
    RETRAIN_SUITE,
    Terms,
    answer,
    judge,
    judge_left,
    settle_champion,
)
from flows.steps.models.registration import register_run
from flows.steps.models.retraining import (
    NoChampion,
    TooFewTests,
    champion_experiment,
    require_comparable,
    with_dataset,
    with_files,
    with_more_seeds,
)
from flows.steps.results import stored_result
from flows.steps.training.cells import bind
from lsm_core.experiments.experiment import BoundExperiment, Experiment
from lsm_core.experiments.plans import AddedSamples, DataPlan, OfficialPlan
from lsm_core.result import Result
from storage.datasets.reader import Dataset
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from storage.tracking.model_state import LOCKED, Change
from storage.tracking.registry import ModelRegistry
from tests.flows.steps.data.generation import generated
from tests.flows.steps.trained_runs import cell, write_run
from tests.storage.tracking.mlflow_server import record_run

NAME = "pde-burgers"
PARAMETERS = {"resolution": 32, "solver_points": 64, "solver_steps": 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def root(folder: Path) -> Location:
    return Location.parse(str(folder))


def written(plan: DataPlan, root: Location) -> Dataset:
    return generated(plan, root)


@pytest.fixture(scope="module")
def dataset(root: Location) -> Location:
    return written(
        replace(cell("burgers", **PARAMETERS).data, n_train=4, n_validation=2), root
    ).location


@pytest.fixture(scope="module")
def server(mlflow_server: str) -> str:
    return mlflow_server


OFFSETS = {"usual": 1.0, "equal": 1.0, "worse": 2.0, "better": 0.1}
"""Models that predict nearly one value everywhere: the further from zero, the worse."""


@pytest.fixture(scope="module")
def versions(server: str, root: Location) -> dict[str, int]:
    """Return the numbers of registered models, the first of them the champion."""
    numbers = {}
    for seed, (quality, offset) in enumerate(OFFSETS.items()):
        made: BoundExperiment = cell("burgers", "fno", seed, **PARAMETERS)
        write_run(made, root, {"outputs.mean": offset, "outputs.std": 1e-3})
        record_run(server, Path(str(root)), made.identity)
        numbers[quality] = register_run(made.identity, root, server).number
    return numbers


@pytest.fixture
def registry(server: str, root: Location, versions: dict[str, int]) -> ModelRegistry:
    """Return the registry with the usual champion."""
    opened = ModelRegistry(server, root)
    opened.note(NAME, Change(aliases={"champion": versions["usual"]}))
    return opened


def test_a_better_challenger_is_promoted(
    registry: ModelRegistry, versions: dict[str, int], dataset: Location, root: Location
) -> None:
    registry.note(NAME, Change(aliases={"challenger": versions["better"]}))
    verdict = judge("burgers", dataset, root, registry.uri)
    assert verdict.promoted
    assert verdict.reason.startswith("better: mean error ")
    assert (verdict.champion, verdict.challenger) == (versions["usual"], versions["better"])
    assert verdict.decision is not None
    assert verdict.decision.n_samples == 16
    assert verdict.decision.challenger_error < 0.5 * verdict.decision.champion_error
    promoted = registry.find(f"{NAME}@champion")
    assert promoted.number == versions["better"]
    assert promoted.tags["judged/against"] == str(versions["usual"])
    assert promoted.tags["judged/reason"] == verdict.reason
    assert registry.state(NAME).with_alias("challenger") is None


def test_one_that_waits_for_approval_is_judged_once(
    registry: ModelRegistry, versions: dict[str, int], dataset: Location, root: Location
) -> None:
    """A run that was suspended looks again when it is resumed; that spends no level."""
    registry.note(NAME, Change(aliases={"challenger": versions["better"]}))
    n_before = len(registry.record.turns(NAME))
    first = judge("burgers", dataset, root, registry.uri, Terms(approve=True))
    again = judge("burgers", dataset, root, registry.uri, Terms(approve=True))
    assert first.state == again.state == "NeedsApproval"
    assert first.decision == again.decision
    assert len(registry.record.turns(NAME)) == n_before + 1
    challenger = registry.find(f"{NAME}/{versions['better']}")
    answered = answer(challenger, False, "not now", root, registry.uri, Terms().time)
    assert answered.state == "Kept"
    assert answered.reason.startswith("refused: not now; better: mean error ")
    told = registry.record.turns(NAME)[n_before:]
    assert [turn.verdict for turn in told] == ["NeedsApproval", "Refused"]
    assert ["level" in turn.figures for turn in told] == [True, False]
    assert registry.find(f"{NAME}@champion").number == versions["usual"]


@pytest.mark.parametrize("quality", ["equal", "worse"])
def test_an_equal_or_worse_challenger_is_not(
    quality: str,
    registry: ModelRegistry,
    versions: dict[str, int],
    dataset: Location,
    root: Location,
) -> None:
    registry.note(NAME, Change(aliases={"challenger": versions[quality]}))
    verdict = judge("burgers", dataset, root, registry.uri)
    assert not verdict.promoted
    assert registry.find(f"{NAME}@champion").number == versions["usual"]
    kept = registry.find(f"{NAME}/{versions[quality]}")
    assert kept.aliases == ()
    assert kept.tags["judged/promoted"] == "False"
    assert kept.tags["judged/reason"] == verdict.reason


@pytest.mark.parametrize(
    "broken",
    [
        "flows.steps.models.judgement.registered_model",
        "storage.tracking.registry.ModelRegistry.note",
    ],
)
def test_a_crash_in_the_middle_changes_nothing(
    broken: str,
    registry: ModelRegistry,
    versions: dict[str, int],
    dataset: Location,
    monkeypatch: pytest.MonkeyPatch,
    root: Location,
) -> None:
    registry.note(NAME, Change(aliases={"challenger": versions["better"]}))

    class Killed(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(broken, dies)
        with pytest.raises(Killed):
            judge("burgers", dataset, root, registry.uri)
    assert registry.find(f"{NAME}@champion").number == versions["usual"]
    assert registry.find(f"{NAME}@challenger").number == versions["better"]
    assert judge("burgers", dataset, root, registry.uri).promoted
    assert registry.find(f"{NAME}@champion").number == versions["better"]


def test_mlflow_follows_a_verdict_that_it_was_not_told(
    registry: ModelRegistry,
    versions: dict[str, int],
    dataset: Location,
    monkeypatch: pytest.MonkeyPatch,
    root: Location,
) -> None:
    def champion_in_mlflow() -> int:
        return int(registry.client.get_registered_model(NAME).aliases["champion"])

    registry.note(NAME, Change(aliases={"challenger": versions["better"]}))
    with monkeypatch.context() as patched:
        patched.setattr(ModelRegistry, "echo", lambda *_: 0)
        assert judge("burgers", dataset, root, registry.uri).promoted
    assert registry.find(f"{NAME}@champion").number == versions["better"]
    assert champion_in_mlflow() == versions["usual"]
    assert registry.echo(NAME) > 0
    assert champion_in_mlflow() == versions["better"]
    assert registry.echo(NAME) == 0


DEATHS = ("alias", "verdict")
"""Before what a retraining is killed."""


def die_before(step: str, identity: str, root: str, uri: str, dataset: str) -> None:
    """Register a challenger and judge it, and be killed where a step begins."""

    def dies(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        if step == "alias":
            patch.setattr(ModelRegistry, "note", dies)
        register_run(identity, Location.parse(root), uri, alias="challenger")
        patch.setattr(ModelRegistry, "note", dies)
        judge("burgers", Location.parse(dataset), Location.parse(root), uri)
        raise AssertionError(f"it was not killed before its {step}")


@pytest.mark.parametrize("step", DEATHS)
def test_a_retraining_that_was_killed_before_its_verdict_gets_it_the_next_time(
    step: str,
    registry: ModelRegistry,
    versions: dict[str, int],
    dataset: Location,
    root: Location,
) -> None:
    made = retrained(100 + DEATHS.index(step), registry, root, dataset)
    before = registry.find(f"{NAME}@champion").number
    child = get_context("spawn").Process(
        target=die_before, args=(step, made.identity, str(root), registry.uri, str(dataset))
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert registry.find(f"{NAME}@champion").number == before
    verdict = judge_left("burgers", root, registry.uri)
    assert verdict is not None
    assert verdict.promoted
    promoted = registry.find(f"{NAME}@champion")
    assert promoted.tags["identity"] == made.identity
    assert judge_left("burgers", root, registry.uri) is None


def retrained(
    seed: int, registry: ModelRegistry, root: Location, dataset: Location, offset: float = 0.05
) -> BoundExperiment:
    """Keep a run of a retraining, which is not registered yet."""
    made = cell("burgers", "fno", seed, **PARAMETERS)
    write_run(made, root, {"outputs.mean": offset, "outputs.std": 1e-3}, study=RETRAIN_SUITE)
    name_dataset(made, root, dataset)
    record_run(registry.uri, Path(str(root)), made.identity)
    return made


def test_a_model_that_cannot_be_judged_is_told_once_and_stops_no_later_retraining(
    registry: ModelRegistry, versions: dict[str, int], dataset: Location, root: Location
) -> None:
    registry.note(NAME, Change(tags={LOCKED: "of other samples"}))
    made = retrained(200, registry, root, dataset)
    register_run(made.identity, root, registry.uri, alias="challenger")
    verdict = judge_left("burgers", root, registry.uri)
    registry.note(NAME, Change(tags={LOCKED: ""}))
    assert verdict is not None
    assert not verdict.promoted
    assert "not those by which models of burgers are judged" in verdict.reason
    assert judge_left("burgers", root, registry.uri) is None
    assert registry.find(f"{NAME}@champion").number == versions["usual"]


def name_dataset(made: BoundExperiment, root: Location, dataset: Location) -> None:
    """Let the result of a run say that it was trained on a dataset."""
    checkpoints = Checkpoints(root / "checkpoints" / made.identity)
    result = checkpoints.result()
    assert result is not None
    checkpoints.write_result({**result, "dataset": {**result["dataset"], "name": dataset.name}})


def test_the_test_samples_are_locked(
    registry: ModelRegistry, versions: dict[str, int], dataset: Location, root: Location
) -> None:
    registry.note(NAME, Change(aliases={"challenger": versions["equal"]}))
    judge("burgers", dataset, root, registry.uri)
    locked = registry.state(NAME).locked["smoke"]
    plan = replace(cell("burgers", **PARAMETERS).data, n_train=6, n_validation=2)
    registry.note(NAME, Change(aliases={"challenger": versions["better"]}))
    with pytest.raises(BadInput, match="not those by which models of burgers are judged"):
        judge("burgers", written(replace(plan, n_test=15), root).location, root, registry.uri)
    assert registry.find(f"{NAME}@champion").number == versions["usual"]
    # More training samples leave the test samples as they are.
    assert judge("burgers", written(plan, root).location, root, registry.uri).promoted
    assert registry.state(NAME).locked["smoke"] == locked


def test_promoting_a_model_of_other_data_unlocks_the_test_samples(
    registry: ModelRegistry, versions: dict[str, int], dataset: Location, root: Location
) -> None:
    registry.note(NAME, Change(tags={LOCKED: "of other samples"}))
    promote(f"{NAME}/{versions['worse']}", "by hand", root, registry.uri)
    assert registry.state(NAME).locked["smoke"] == "of other samples"
    registry.note(NAME, Change(versions={versions["equal"]: {"dataset": "another"}}))
    promote(f"{NAME}/{versions['equal']}", "by hand", root, registry.uri)
    assert registry.find(f"{NAME}@champion").number == versions["equal"]
    registry.note(NAME, Change(aliases={"challenger": versions["better"]}))
    assert judge("burgers", dataset, root, registry.uri).promoted


def test_before_the_first_judgement_the_champions_own_test_samples_count(
    registry: ModelRegistry, versions: dict[str, int], dataset: Location, root: Location
) -> None:
    made = retrained(300, registry, root, dataset, offset=1.0)
    champion = register_run(made.identity, root, registry.uri)
    promote(f"{NAME}/{champion.number}", "by hand", root, registry.uri)
    registry.note(NAME, Change(tags={LOCKED: ""}))
    registry.note(NAME, Change(aliases={"challenger": versions["better"]}))
    plan = replace(cell("burgers", **PARAMETERS).data, n_train=4, n_validation=2, n_test=8)
    with pytest.raises(BadInput, match=f"instead of {champion.tags[TEST_SAMPLES]}"):
        judge("burgers", written(plan, root).location, root, registry.uri)
    assert registry.state(NAME).locked["smoke"] == ""
    assert judge("burgers", dataset, root, registry.uri).promoted
    assert registry.state(NAME).locked["smoke"] == champion.tags[TEST_SAMPLES]


def test_models_of_other_data_or_size_are_judged_in_a_league_of_their_own(
    registry: ModelRegistry, versions: dict[str, int], dataset: Location, root: Location
) -> None:
    official = registry.find(f"{NAME}/{versions['better']}")
    registry.note(NAME, Change(versions={official.number: {"origin": "official"}}))
    registry.note(NAME, Change(aliases={"challenger": official.number}))
    with pytest.raises(BadInput, match="there is no pde-burgers@champion-smoke-official to judge"):
        judge("burgers", dataset, root, registry.uri)
    assert registry.find(f"{NAME}@champion").number == versions["usual"]
    registry.note(NAME, Change(versions={official.number: {"origin": "generated"}}))
    assert judge("burgers", dataset, root, registry.uri).promoted


def test_judging_needs_two_models(
    registry: ModelRegistry, dataset: Location, root: Location
) -> None:
    with pytest.raises(BadInput, match="there is no pde-burgers@challenger to judge"):
        judge("burgers", dataset, root, registry.uri)


def test_a_challenger_starts_from_the_champion_with_more_samples(
    registry: ModelRegistry, root: Location
) -> None:
    with pytest.raises(NoChampion, match="there is no champion pde-darcy"):
        champion_experiment("darcy", root, registry.uri)
    made = cell("burgers", "fno", 0, **PARAMETERS)
    result = Checkpoints(root / "checkpoints" / made.identity).result()
    assert result is not None
    assert Experiment.from_plain(result["settings"]).protocol == made.protocol
    base = champion_experiment("burgers", root, registry.uri)
    planned = with_more_seeds(base, 8)
    assert planned.data.n_train == made.data.n_train + 8
    assert planned.data.n_test == made.data.n_test
    assert planned.start is not None
    assert planned.start.source == made.identity
    assert planned.model == made.model
    with pytest.raises(BadInput, match="needs new samples"):
        with_more_seeds(base, 0)


def test_the_seeds_of_a_generated_dataset_are_new_once(
    registry: ModelRegistry, root: Location
) -> None:
    base = champion_experiment("burgers", root, registry.uri)
    larger = written(replace(base.data, n_train=base.data.n_train + 5), root)
    planned, note = with_dataset(base, larger, root)
    assert planned is not None
    assert note == ""
    assert planned.data.n_train == base.data.n_train + 5
    assert planned.start == base.start
    again, why = with_dataset(planned, larger, root)
    assert again is None
    assert why == f"{larger.location} has no seed that was not used before"
    other = written(base.data.at_resolution(16), root)
    refused, why = with_dataset(base, other, root)
    assert refused is None
    assert why == f"{other.location} is of a problem with other parameters"


def test_the_samples_of_a_converted_dataset_are_new_once(
    registry: ModelRegistry, root: Location
) -> None:
    base = champion_experiment("burgers", root, registry.uri)
    made = written(replace(base.data, n_train=6), root)
    converted = Dataset(made.location, {**made.attributes, "provenance": {"kind": "published"}})
    planned, note = with_dataset(base, converted, root)
    assert planned is not None
    assert note == ""
    assert planned.data.split_sizes["train"] == base.data.n_train + 5
    kept = written(planned.data, root).part("train", ["initial"])[-5:]["initial"]
    given = made.part("train", ["initial"])[:]["initial"]
    np.testing.assert_array_equal(kept, given[[0, 1, 2, 3, 5]])  # the fifth is held out
    again, why = with_dataset(planned, converted, root)
    assert again is None
    assert why == f"the samples of {made.location} were used before"
    coarse = written(base.data.at_resolution(16), root)
    unsuited = Dataset(coarse.location, {**coarse.attributes, "provenance": {}})
    refused, why = with_dataset(base, unsuited, root)
    assert refused is None
    assert "initial has samples of shape (16,), expected (" in why


def test_a_champion_of_official_files_takes_other_files_alone(
    registry: ModelRegistry, root: Location
) -> None:
    base = champion_experiment("burgers", root, registry.uri)
    made = written(replace(base.data, n_train=7), root)
    files = Dataset(made.location, {**made.attributes, "provenance": {"kind": "published"}})
    own = OfficialPlan(**vars(base.data), stride=1, recipe=str(made.attributes["recipe"]))
    champion = replace(base, data=own)
    assert with_dataset(champion, files, root) == (
        None,
        f"the champion was trained on {made.location}",
    )
    refused, why = with_dataset(champion, made, root)
    assert refused is None
    assert why == f"{made.location} is generated, the champion is of official files"
    planned, _ = with_dataset(replace(base, data=replace(own, recipe="another")), files, root)
    assert planned is not None
    assert planned.data.origin == "official"
    assert planned.data.split_sizes["train"] == base.data.n_train + 7 - 7 // 5


def test_files_are_new_once(registry: ModelRegistry, root: Location, server: str) -> None:
    base = champion_experiment("burgers", root, registry.uri)
    first, second = (AddedSamples(digest=name * 64, n_samples=3) for name in "ab")
    planned = with_files(base, [first])
    assert planned is not None
    assert planned.data.split_sizes["train"] == base.data.n_train + 3
    write_run(bind(planned), root)
    record_run(server, Path(str(root)), bind(planned).identity)
    register_run(bind(planned).identity, root, server)
    later = champion_experiment("burgers", root, registry.uri)
    assert later.start == base.start
    assert later.data.n_train == base.data.n_train
    assert with_files(later, [first]) is None
    both = with_files(later, [first, second])
    assert both is not None
    assert both.data.split_sizes["train"] == base.data.n_train + 6
    assert with_more_seeds(later, 8).data.split_sizes["train"] == base.data.n_train + 3 + 8


def finished(
    number: int, registry: ModelRegistry, root: Location, dataset: Location, **changes: Any
) -> Result:
    """Return the result of the run of a version, on a dataset, some figures changed."""
    result = stored_result(root, registry.find(f"{NAME}/{number}").tags["identity"])
    assert result is not None
    named = replace(result.dataset, name=dataset.name)
    return replace(result, **{"dataset": named, "validation": {}, **changes})


def test_the_best_of_some_runs_challenges_the_champion(
    registry: ModelRegistry, versions: dict[str, int], dataset: Location, root: Location
) -> None:
    runs = {
        quality: finished(number, registry, root, dataset, validation={"rel_l2": OFFSETS[quality]})
        for quality, number in versions.items()
    }
    registry.note(NAME, Change(aliases={"champion": versions["worse"]}))
    verdict = settle_champion([runs["usual"], runs["better"]], root, registry.uri)
    assert verdict is not None
    assert verdict.promoted
    assert registry.find(f"{NAME}@champion").number == versions["better"]
    assert settle_champion([runs["better"], runs["usual"]], root, registry.uri) is None
    # The champion is not asked about the same model twice.
    told = settle_champion([runs["usual"]], root, registry.uri)
    assert told is not None
    assert not told.promoted
    assert settle_champion([runs["usual"]], root, registry.uri) is None
    assert registry.find(f"{NAME}@champion").number == versions["better"]
    # Nor does a champion come back that somebody has replaced.
    promote(f"{NAME}/{versions['worse']}", "by hand", root, registry.uri)
    assert settle_champion([runs["better"]], root, registry.uri) is None


def test_a_run_whose_epoch_the_test_samples_chose_does_not_challenge(
    registry: ModelRegistry, versions: dict[str, int], dataset: Location, root: Location
) -> None:
    run = finished(versions["better"], registry, root, dataset, selection="best_test")
    assert settle_champion([run], root, registry.uri) is None
    assert registry.find(f"{NAME}@champion").number == versions["usual"]
    assert settle_champion([replace(run, selection="last")], root, registry.uri) is not None


def test_a_larger_preset_has_a_champion_of_its_own_which_is_the_champion(
    root: Location, server: str, dataset: Location, registry: ModelRegistry
) -> None:
    made = retrained(400, registry, root, dataset, offset=3.0)
    number = register_run(made.identity, root, server).number
    registry.note(NAME, Change(versions={number: {"preset": "quick"}}))
    small = registry.find(f"{NAME}@champion-smoke")
    run = finished(number, registry, root, dataset, preset="quick", test={"rel_l2": 2.0})
    verdict = settle_champion([run], root, registry.uri)
    assert verdict is not None
    assert verdict.reason == "the first champion of quick"
    assert registry.find(f"{NAME}@champion").number == number
    assert registry.find(f"{NAME}@champion-smoke").number == small.number
    assert registry.client.get_registered_model(NAME).aliases["champion-quick"] == str(number)


def test_one_test_sample_is_too_few_to_judge_by_and_said_before_training() -> None:
    made = cell("burgers", "fno")
    require_comparable(replace(made, data=replace(made.data, n_test=2)))
    with pytest.raises(TooFewTests, match="burgers has 1 test sample, and two models are compared"):
        require_comparable(replace(made, data=replace(made.data, n_test=1)))
