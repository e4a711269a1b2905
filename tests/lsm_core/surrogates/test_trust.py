"""Expected errors hold as often as they say, and inputs from elsewhere are noticed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lsm_core.evaluation.calibration import calibrated, errors_and_spreads, observed_coverage
from lsm_core.models.catalogue import build_model
from lsm_core.problems.shape import ProblemShape
from lsm_core.surrogates.normalization import Normalization
from lsm_core.surrogates.rollout import Rollout
from lsm_core.surrogates.surrogate import Surrogate, predict
from lsm_core.surrogates.trust import Trust, conformal_quantile, features
from lsm_core.training.batches import Fields
from tests.lsm_core.models.small_configs import SMALL

N_POINTS = 32


class Wave(nn.Module):
    """A map that is more sensitive the larger its input is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, field: Tensor) -> Tensor:
        return self.layer(field) + 0.3 * field**3


def scaled(model: nn.Module) -> Surrogate:
    plain = [Normalization(torch.zeros(()), torch.ones(())) for _ in range(2)]
    return Surrogate(model, *plain).eval()


def samples(n_samples: int, seed: int, size: float = 1.0) -> Fields:
    """Return smooth inputs and the targets of others near them: errors are as the map is steep."""
    random = torch.Generator().manual_seed(seed)
    x = torch.linspace(0, 2 * torch.pi, N_POINTS)
    modes = torch.stack([torch.sin(k * x + k) for k in range(1, 5)])
    inputs = size * (torch.randn(n_samples, 4, generator=random) @ modes).unsqueeze(-1)
    noise = 0.1 * inputs.std(1, keepdim=True) * torch.randn(inputs.shape, generator=random)
    torch.manual_seed(0)
    return Fields(inputs, predict(scaled(Wave()), inputs + noise, n_samples))


@pytest.fixture(scope="module")
def surrogate() -> Surrogate:
    torch.manual_seed(0)
    return scaled(Wave())


@pytest.fixture(scope="module")
def trust(surrogate: Surrogate) -> Trust:
    return calibrated(surrogate, samples(300, 1), samples(400, 2))


def test_errors_stay_below_what_is_expected_as_often_as_stated(
    surrogate: Surrogate, trust: Trust
) -> None:
    errors, spreads = errors_and_spreads(surrogate, samples(4000, 3))
    parts = [0.5, 0.8, 0.9]
    found = observed_coverage(trust, errors, spreads, parts)
    # Four deviations of a quantile that is estimated by 400 samples.
    assert found == pytest.approx(parts, abs=4 * 0.5 / 400**0.5)
    assert found[-1] == pytest.approx(0.9, abs=4 * 0.3 / 400**0.5)


def test_the_expected_error_is_larger_where_the_error_is(
    surrogate: Surrogate, trust: Trust
) -> None:
    errors, spreads = errors_and_spreads(surrogate, samples(1000, 4))
    expected = trust.expected_errors(spreads)
    assert trust.power > 0.2
    assert np.corrcoef(np.log(expected), np.log(errors))[0, 1] > 0.5


def test_few_samples_state_less_and_never_promise_more(surrogate: Surrogate) -> None:
    few = calibrated(surrogate, samples(40, 1), samples(4, 2))
    assert (few.coverage, few.false_alarms) == (0.8, 0.2)
    assert np.isfinite(few.expected_errors(np.array([0.1]))).all()
    assert few.expected_errors(np.array([0.1]), 0.9) == np.inf


def test_inputs_from_elsewhere_are_strange_and_those_of_the_kind_are_not(
    surrogate: Surrogate, trust: Trust
) -> None:
    def strange(given: Fields) -> float:
        predicted = predict(surrogate, given.inputs, len(given))
        return float(trust.opinion(surrogate, given.inputs, predicted).is_strange.mean())

    assert trust.false_alarms == 0.02
    assert strange(samples(2000, 5)) < 0.05
    assert strange(samples(200, 5, size=4.0)) > 0.9
    rough = torch.randn(200, N_POINTS, 1, generator=torch.Generator().manual_seed(6))
    assert strange(Fields(rough, rough)) > 0.9


def test_a_calibration_comes_back_from_its_arrays(surrogate: Surrogate, trust: Trust) -> None:
    given = samples(20, 7)
    predicted = predict(surrogate, given.inputs, 20)
    before, after = (
        each.opinion(surrogate, given.inputs, predicted)
        for each in (trust, Trust.from_arrays(trust.to_arrays()))
    )
    assert after.expected_error == pytest.approx(before.expected_error, rel=1e-5)
    assert after.strangeness == pytest.approx(before.strangeness, rel=1e-2)
    with pytest.raises(ValueError, match="a calibration has no basis"):
        Trust.from_arrays({k: v for k, v in trust.to_arrays().items() if k != "basis"})


@pytest.mark.parametrize("name", ["lsm", "lsm_ours", "fno", "unet", "ridge"])
def test_an_opinion_does_not_depend_on_the_neighbours(name: str) -> None:
    torch.manual_seed(0)
    shape = ProblemShape(space=(16, 16), n_inputs=2, n_outputs=1)
    model = scaled(build_model(SMALL[name], shape))
    inputs = torch.randn(4, 16, 16, 2)
    together = features(model, inputs, 4)
    alone = np.concatenate([features(model, inputs[i : i + 1], 4) for i in range(4)])
    assert np.allclose(together, alone, atol=1e-5)
    has_inside = name != "ridge"
    assert (together.shape[1] > 2 * (16 + 1)) == has_inside


def test_of_a_model_that_steps_through_time_the_first_step_counts() -> None:
    torch.manual_seed(0)
    shape = ProblemShape(space=(16,), n_inputs=3, n_outputs=1)
    one = build_model(replace(SMALL["lsm_ours"], n_scales=3), shape)  # the third has tokens
    inputs = torch.randn(2, 16, 3)
    stepped = features(scaled(Rollout(one, 4)), inputs, 4)
    assert np.allclose(stepped, features(scaled(one), inputs, 4), atol=1e-6)


def test_nothing_to_calibrate_by_is_said(surrogate: Surrogate) -> None:
    some = samples(10, 1)
    with pytest.raises(ValueError, match="no validation samples"):
        calibrated(surrogate, some, some[:0])
    weighted = Fields(some.inputs, some.targets, torch.ones(10, N_POINTS))
    with pytest.raises(ValueError, match="differ in their points"):
        calibrated(surrogate, weighted, weighted)


def test_a_quantile_counts_the_new_value_too() -> None:
    values = np.arange(1.0, 10.0)
    assert conformal_quantile(values, 0.9) == 9.0
    assert conformal_quantile(values, 0.5) == 5.0
    assert conformal_quantile(values[:-1], 0.9) == np.inf


@pytest.mark.parametrize(("n_known", "n_new"), [(8, 40), (50, 50), (200, 20)])
def test_samples_of_the_kind_are_seldom_called_many_strange_ones_however_few_are_known(
    trust: Trust, n_known: int, n_new: int
) -> None:
    random = np.random.default_rng(n_known)
    alarms = []
    for _ in range(1000):
        known = replace(trust, distances=np.sort(random.random(n_known)))
        bound = conformal_quantile(known.distances, 1 - known.false_alarms)
        alarms.append((random.random(n_new) > bound).sum() > known.most_by_chance(n_new))
    assert np.mean(alarms) < 0.02
    assert known.most_by_chance(n_new) < n_new / 2  # what is strange is still seen
