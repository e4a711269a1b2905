"""The board: ranks no finer than the noise, and alarms that a planted fault sets off."""

import csv
import io
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from lsm_core.evaluation.samples import recomputed
from lsm_core.names import ModelName
from lsm_core.reporting.board import (
    SOLVER,
    Measured,
    boards,
    flags_of,
    outlying_samples,
    paired_p_value,
    too_good,
)
from lsm_core.reporting.board_tables import COLUMNS, board_csv, board_table, claims_table
from lsm_core.reporting.claims import claims_of, later_claims
from lsm_core.reporting.task import task_of
from tests.lsm_core.reporting.results import result

N_TEST = 40


def measured(model: ModelName, scale: float, seed: int = 0, noise: float = 0.05, **changes):
    """Return a run whose samples are as hard as those of others, each a little otherwise."""
    hard = np.random.default_rng(0).lognormal(0, 0.5, N_TEST)
    own = np.random.default_rng([seed, len(model)]).lognormal(0, noise, N_TEST)
    errors = {
        "difference": scale * hard * own,
        "target": np.ones(N_TEST),
        "largest": scale * hard * own,
        "identity": np.array(f"{model}{seed}"),
    }
    figures = recomputed(errors)
    made = result(
        model, figures["rel_l2"], seed, identity=f"{model}{seed}", test=figures, **changes
    )
    return Measured(made, errors)


def ranks(runs):
    (board,) = boards(runs)
    return {row.model: row.rank for row in board.rows}


def test_models_that_the_samples_tell_apart_have_ranks_of_their_own():
    runs = [
        measured(model, scale, seed)
        for model, scale in (("lsm", 0.02), ("fno", 0.03), ("unet", 0.05))
        for seed in range(3)
    ]
    assert ranks(runs) == {"lsm": 1, "fno": 2, "unet": 3}


def test_models_within_the_noise_share_a_rank():
    runs = [measured("lsm", 0.02), measured("fno", 0.02), measured("unet", 0.05)]
    assert ranks(runs) == {"lsm": 1, "fno": 1, "unet": 3}


def test_a_difference_within_the_deviation_over_seeds_is_no_rank():
    # Clearly apart on the samples, but the seeds of one model differ by more.
    wide = [measured("fno", scale, seed) for seed, scale in enumerate((0.015, 0.022, 0.029))]
    narrow = [measured("lsm", 0.02, seed) for seed in range(3)]
    (board,) = boards([*wide, *narrow])
    assert [row.rank for row in board.rows] == [1, 1]
    assert board.rows[1].p_value < 0.05


def test_without_the_errors_of_samples_nothing_is_told_apart():
    runs = [Measured(measured(model, scale).result) for model, scale in (("lsm", 1), ("fno", 2))]
    assert set(ranks(runs).values()) == {1}


def test_the_paired_test_is_scipys():
    from scipy.stats import ttest_rel

    first, second = measured("lsm", 0.02), measured("fno", 0.0205)
    expected = ttest_rel(first.relative, second.relative).pvalue
    assert paired_p_value([first], [second]) == pytest.approx(expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": "paper"},
        {"dataset": {"name": "data", "digest": "e" * 64}},
        {"origin": "official"},
        {"settings": {"data": {"split_sizes": {"test": 5}}, "training": {"batch_size": 4}}},
        {"settings": {"data": {"split_sizes": {"test": 4}}, "training": {"batch_size": 8}}},
    ],
)
def test_what_differs_in_data_split_or_protocol_is_another_task(changes):
    one, other = result(), result(**changes)
    assert task_of(one).id == task_of(result("fno", 0.3, 1)).id
    assert task_of(one).id != task_of(other).id


def test_divisions_are_never_in_one_table():
    runs = [measured("lsm", 0.02), measured("fno", 0.03, preset="paper")]
    assert [board.task.division for board in boards(runs)] == ["published", "modern"]


def test_flags_say_what_an_error_has_to_be_read_with():
    training = {
        "batch_size": 4,
        "averaging": 0.99,
        "gradient_clip": 1.0,
        "derivative_weight": 0.1,
        "weight_decay": 0.0,
    }
    settings = {"data": {}, "training": training, "model": {"body": {}}}
    steps = {"rel_l2": 0.1, "rel_l2_step_1": 0.1, "rel_l2_step_2": 0.1}
    run = result(settings=settings, test=steps, selection="best_test")
    expected = {"rollout", "derivative loss", "EMA", "clip", "no decay", "latent grid"}
    assert set(flags_of(run)) == expected | {"chosen by test"}
    forced = {**settings, "training": {**training, "teacher_forcing": True}}
    assert "teacher forcing" in flags_of(result(settings=forced, test=steps))
    assert "rollout" not in flags_of(result(settings=forced, test=steps))
    at_once = flags_of(result(settings=settings, test=steps, epochs=0))
    assert set(at_once) == {"fitted", "latent grid"}


@pytest.mark.parametrize(("seconds", "is_slower"), [(0.004, False), (0.02, True)])
def test_a_solver_says_its_settings_and_both_times(seconds, is_slower):
    model = {
        "settings": "resolution 8",
        "seconds_a_sample": seconds,
        "network": "lsm_ours",
        "network_seconds_a_sample": 0.005,
    }
    settings = {"data": {}, "training": {"batch_size": 4, "gradient_clip": 1.0}, "model": model}
    flags = flags_of(result(model=SOLVER, settings=settings, epochs=0))
    times = f"{1000 * seconds:g} ms a sample, LSM (ours) 5 ms"
    assert flags[:2] == ("solver at resolution 8", times)
    assert ("slower than the network" in flags) == is_slower


def kernel_fit(inputs, targets):
    """Return the interpolation between samples by Gaussian functions: a real, small model."""

    def kernel(a, b):
        return np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / 40)

    weights = np.linalg.solve(kernel(inputs, inputs) + 1e-8 * np.eye(len(inputs)), targets)
    return lambda asked: kernel(asked, inputs) @ weights


def test_a_test_sample_in_the_training_set_raises_the_alarm():
    """The model is fitted for real, once a subset of the training samples and once with a leak."""
    random = np.random.default_rng(5)
    mixing = random.normal(size=(6, 30))

    def solve(inputs):
        return np.tanh(inputs @ mixing) + inputs @ mixing

    train, test = random.normal(size=(120, 6)), random.normal(size=(N_TEST, 6))
    targets = solve(test)

    def run(samples, seed):
        difference = np.linalg.norm(kernel_fit(samples, solve(samples))(test) - targets, axis=1)
        norms = np.linalg.norm(targets, axis=1)
        errors = {"difference": difference, "target": norms, "largest": difference}
        figures = recomputed(errors)
        made = result("fno", figures["rel_l2"], seed, identity=f"run{seed}", test=figures)
        return Measured(made, errors)

    honest = [run(random.permutation(train)[:100], seed) for seed in range(4)]
    assert too_good(honest[0], honest[1:]) == []
    leaking = run(np.concatenate([train[:99], test[17:18]]), seed=4)
    (alarm,) = too_good(leaking, honest)
    assert "1 of 40 test samples (17)" in alarm
    (board,) = boards([*honest, leaking])
    assert any("fno seed 4" in alarm for alarm in board.rows[0].alarms)


def test_a_run_that_is_too_good_on_the_whole_raises_the_alarm():
    honest = [measured("fno", 0.02 + 0.0002 * seed, seed) for seed in range(4)]
    better = measured("fno", 0.012, 4)
    (alarm,) = too_good(better, honest)
    assert alarm.startswith("error 0.0")
    assert too_good(honest[0], honest[1:]) == []


def test_a_model_that_is_better_everywhere_has_no_outlying_samples():
    one, other = measured("lsm", 0.002).relative, measured("fno", 0.02).relative
    assert outlying_samples(one, other) == []


def test_swapped_results_are_found_by_recomputation():
    lsm, fno = measured("lsm", 0.02), measured("fno", 0.05)
    assert all(not row.alarms for row in boards([lsm, fno])[0].rows)
    swapped = [
        Measured(replace(lsm.result, test=fno.result.test), lsm.errors),
        Measured(replace(fno.result, test=lsm.result.test), fno.errors),
    ]
    alarms = [alarm for row in boards(swapped)[0].rows for alarm in row.alarms]
    assert any("lsm seed 0: rel_l2 is" in alarm for alarm in alarms)
    assert any("fno seed 0: rel_l2 is" in alarm for alarm in alarms)
    # With their samples, too: these say whose they are.
    whole = [
        Measured(replace(lsm.result, test=fno.result.test), fno.errors),
        Measured(replace(fno.result, test=lsm.result.test), lsm.errors),
    ]
    alarms = [alarm for row in boards(whole)[0].rows for alarm in row.alarms]
    assert "lsm seed 0: its errors are those of run fno0" in alarms


def test_claims_have_a_source_a_date_and_a_model_of_ours():
    from lsm_core.models.catalogue import MODELS

    for claim in later_claims():
        assert claim.model in MODELS
        assert claim.title
        assert 2023 <= int(claim.date) <= 2026
    first, *others = claims_of("elasticity_p", "transolver", (972,))
    assert (first.error, first.date) == (0.0064, "2024")
    assert len(others) == 2
    assert claims_of("darcy", "lsm", (85, 85))[0].error == 0.0065
    assert claims_of("elasticity_g", "flare", (41, 41)) == []


def test_the_files_and_the_table_say_the_same():
    runs = [measured("transolver", 0.02), measured("lsm", 0.05, 0), measured("lsm", 0.051, 1)]
    runs = [replace(r, result=replace(r.result, benchmark="elasticity_p")) for r in runs]
    (board,) = boards(runs)
    lines = list(csv.DictReader(io.StringIO(board_csv(board))))
    assert tuple(lines[0]) == COLUMNS
    assert [line["model"] for line in lines] == ["transolver", "lsm"]
    assert lines[0]["claimed"] == "0.0064"
    assert lines[0]["task"] == board.task.id
    assert [float(line["error"]) for line in lines] == pytest.approx(
        [row.errors.mean for row in board.rows], rel=1e-5
    )
    table = board_table(board)
    assert [row[1] for row in table.rows] == ["transolver", "lsm"]
    assert 'class="sortable"' in table.html()
    assert len(claims_table(board).rows) == 4
    assert all(a.errors.mean <= b.errors.mean for a, b in pairwise(board.rows))
