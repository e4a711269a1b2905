"""Results and failures: to plain data and back, also from what older versions wrote."""

import json
from dataclasses import replace

from lsm_core.result import Best, DatasetName, Epoch, Failure, Result, outcome_from_plain

RESULT = Result(
    identity="a1",
    protocol="b2",
    study="transfer",
    preset="quick",
    benchmark="airfoil",
    resolution=(56, 26),
    model="lsm",
    setting="fine-tuned",
    seed=1,
    fraction=0.2,
    source="c3",
    validation={"rel_l2": 0.25},
    test={"rel_l2": 0.5, "boundary": 0.75},
    parameters=12,
    mean_prediction=None,
    seconds_per_epoch=1.5,
    epochs=1,
    n_train=8,
    best=Best(epoch=1, error=0.25),
    begun_anew=("head",),
    history=(
        Epoch(
            epoch=1,
            train=0.5,
            validation=0.25,
            learning_rate=1e-3,
            seconds=1.5,
            samples_per_second=6.0,
            peak_bytes=2**20,
        ),
    ),
    dataset=DatasetName(name="56x26.zarr", digest="d4"),
    code="e5",
    settings={"training": {"epochs": 1}},
    environment={"device": "cpu"},
    finished="2026-11-17T12:00:00+00:00",
)
FAILURE = Failure(
    identity="a1",
    protocol="b2",
    study="benchmark",
    preset="smoke",
    origin="official",
    benchmark="darcy",
    resolution=(16, 16),
    model="fno",
    seed=0,
    error="Diverged: the loss is nan",
)


def test_results_and_failures_come_back_from_json_as_they_were() -> None:
    for outcome in (RESULT, FAILURE, replace(RESULT, best=None, history=())):
        assert outcome_from_plain(json.loads(json.dumps(outcome.to_plain()))) == outcome


def test_a_suite_is_named_by_study_preset_and_kind_of_data() -> None:
    assert RESULT.suite == "transfer-quick"
    assert FAILURE.suite == "benchmark-smoke-official"
    assert replace(RESULT, study="train").suite == "train"


def test_results_of_before_they_had_a_study_are_read_by_their_suite() -> None:
    for outcome in (RESULT, FAILURE, replace(RESULT, study="train")):
        old = outcome.to_plain()
        del old["study"]
        assert outcome_from_plain(old) == outcome
