import numpy as np
import pytest
import torch
from torch import nn

from lsm_core.evaluation.evaluate import chosen_samples, evaluate, sample_errors
from lsm_core.evaluation.samples import (
    disagreements,
    quantiles,
    recomputed,
    relative_of,
    worst_samples,
)
from lsm_core.training.batches import Fields


def fields(n_samples=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n_samples, 9, 2, generator=generator)
    return Fields(inputs, torch.randn(n_samples, 9, 1, generator=generator))


@pytest.fixture
def measured():
    torch.manual_seed(3)
    model, parts = nn.Linear(2, 1), fields().split(3)
    errors = {k: v.numpy() for k, v in sample_errors(model, parts, batch_size=2).items()}
    return evaluate(model, parts, batch_size=2), errors


def test_the_figures_of_a_result_follow_from_the_errors_of_its_samples(measured):
    figures, errors = measured
    assert len(errors["target"]) == 7
    assert recomputed(errors) == pytest.approx(figures)
    assert disagreements(figures, errors) == []


def test_a_figure_that_is_another_runs_is_told(measured):
    figures, errors = measured
    swapped = figures | {"rel_l2": 1.01 * figures["rel_l2"]}
    (fault,) = disagreements(swapped, errors)
    assert fault.startswith("rel_l2 is ")


def test_the_worst_come_first(measured):
    _, errors = measured
    relative = relative_of(errors)
    worst = worst_samples(errors, 3)
    assert relative[worst[0]] == relative.max()
    assert sorted(worst, key=lambda sample: -relative[sample]) == worst
    assert len(worst_samples(errors, 10)) == 7


def test_quantiles_rise():
    errors = {"difference": np.arange(1.0, 102.0), "target": np.full(101, 10.0)}
    assert quantiles(errors) == pytest.approx({"10%": 1.1, "50%": 5.1, "90%": 9.1, "99%": 10.0})


def test_samples_are_found_over_all_parts_in_the_order_asked_for():
    whole = fields()
    found = torch.cat([each.inputs for each in chosen_samples(whole.split(3), [5, 0, 4])])
    assert torch.equal(found, whole.inputs[[5, 0, 4]])


def test_no_samples_have_no_errors():
    assert sample_errors(nn.Linear(2, 1), [], batch_size=2) == {}
