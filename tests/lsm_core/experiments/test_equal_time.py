"""A solver at the settings that its time allows."""

import numpy as np
import pytest
import torch

from lsm_core.benchmarks.coarser import settings_of
from lsm_core.benchmarks.darcy import Darcy
from lsm_core.experiments.equal_time import as_fields, network_seconds, solved_in, solver_seconds
from lsm_core.experiments.presets import model_config

PROBLEM = Darcy(resolution=32, field_modes=32)
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def samples():
    return PROBLEM.generate_many(SEEDS)


@pytest.fixture(scope="module")
def inputs(samples):
    return {"coefficient": np.stack([sample["coefficient"] for sample in samples])}


def test_with_all_time_it_is_the_solution(samples, inputs):
    solved = solved_in(60.0, PROBLEM, inputs, SEEDS)
    assert solved.settings == PROBLEM
    assert solved.predicted == pytest.approx(as_fields(PROBLEM, samples), rel=1e-5, abs=1e-9)


def test_without_time_it_is_the_coarsest_and_its_time_tells(inputs):
    solved = solved_in(0.0, PROBLEM, inputs, SEEDS)
    assert solved.settings == settings_of(PROBLEM)[0]
    assert solved.seconds > 0
    assert solved.predicted.shape == (len(SEEDS), 32, 32, 1)


def test_with_some_time_it_keeps_to_it(inputs):
    own = solver_seconds(PROBLEM, PROBLEM, inputs, SEEDS)
    solved = solved_in(100 * own, PROBLEM, inputs, SEEDS)
    assert solved.settings == PROBLEM


def test_settings_without_a_solution_are_passed_over(inputs, monkeypatch):
    from lsm_core.experiments import equal_time
    from lsm_core.solvers.convergence import SolveFailed

    refused = settings_of(PROBLEM)[0]
    solve = equal_time.solved_at

    def only_finer(problem, settings, *samples):
        if settings == refused:
            raise SolveFailed("a mesh", 0, 1.0, 0.0)
        return solve(problem, settings, *samples)

    monkeypatch.setattr(equal_time, "solved_at", only_finer)
    assert solved_in(0.0, PROBLEM, inputs, SEEDS).settings == settings_of(PROBLEM)[1]


def test_a_network_takes_its_time_a_sample(inputs):
    config = model_config("smoke", "darcy", "fno")
    fields = torch.from_numpy(inputs["coefficient"])[..., None]
    assert 1e-6 < network_seconds(config, PROBLEM, fields) < 10
