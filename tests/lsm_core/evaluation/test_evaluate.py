import pytest
import torch

from lsm_core.evaluation.evaluate import (
    Breakdown,
    boundary_points,
    error_of_the_mean,
    evaluate,
    relative_error_on,
    relative_l2,
)
from lsm_core.surrogates.surrogate import predict
from lsm_core.training.batches import Fields
from lsm_core.training.losses import summed_relative_l2


def test_relative_l2_is_the_norm_of_the_difference_over_that_of_the_target() -> None:
    target = torch.tensor([[[3.0], [4.0]], [[0.0], [2.0]]])
    predicted = torch.tensor([[[3.0], [4.5]], [[0.0], [0.0]]])
    torch.testing.assert_close(relative_l2(predicted, target), torch.tensor([0.1, 1.0]))
    assert summed_relative_l2(predicted, target).item() == pytest.approx(1.1)


def test_scaling_both_changes_nothing() -> None:
    torch.manual_seed(0)
    predicted, target = torch.randn(2, 3, 5, 1)
    torch.testing.assert_close(
        relative_l2(7 * predicted, 7 * target), relative_l2(predicted, target)
    )


class Doubled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, field: torch.Tensor) -> torch.Tensor:
        assert not self.training
        return self.factor * field


class Fixed(torch.nn.Module):
    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self.values = torch.nn.Parameter(values)

    def forward(self, field: torch.Tensor) -> torch.Tensor:
        return self.values[: len(field)]


def test_evaluation_covers_the_last_short_batch_and_leaves_the_mode() -> None:
    inputs = torch.arange(1.0, 8.0).reshape(7, 1, 1)
    model = Doubled().train()
    predicted = predict(model, inputs, batch_size=3)
    torch.testing.assert_close(predicted, 2 * inputs)
    assert model.training
    assert not predicted.requires_grad
    errors = evaluate(model, Fields(inputs, inputs).split(4), batch_size=3)
    assert errors == pytest.approx(
        {"rel_l2": 1.0, "rel_l2_median": 1.0, "rel_l2_max": 1.0, "largest_error": 7.0}
    )
    assert evaluate(model, [], batch_size=3) == {}


def test_the_error_is_broken_down_by_channel_boundary_and_interior() -> None:
    target = torch.ones(2, 4, 5, 2)
    predicted = target.clone()
    predicted[:, 0, :, 1] += 0.5  # one side of the boundary, second channel
    model = Fixed(predicted)
    breakdown = Breakdown(channels=("u", "v"), boundary_axes=(0, 1))
    errors = evaluate(model, [Fields(target, target)], 2, breakdown=breakdown)
    assert errors["rel_l2_u"] == 0.0
    assert errors["rel_l2_v"] == pytest.approx((5 * 0.25 / 20) ** 0.5)
    assert errors["rel_l2_interior"] == 0.0
    assert errors["rel_l2_boundary"] == pytest.approx((5 * 0.25 / 28) ** 0.5)
    assert errors["largest_error"] == 0.5


def test_a_boundary_where_the_target_vanishes_has_a_finite_error() -> None:
    target = torch.zeros(1, 5, 1)
    target[0, 1:4] = 2.0
    boundary = boundary_points((5,), axes=(0,))
    assert boundary.tolist() == [True, False, False, False, True]
    error = relative_error_on(boundary, target + 0.1, target)
    assert error.item() == pytest.approx(0.1 / (4 * 3 / 5) ** 0.5)
    everywhere = torch.ones(5, dtype=torch.bool)
    torch.testing.assert_close(
        relative_error_on(everywhere, target + 0.1, target), relative_l2(target + 0.1, target)
    )


def test_predicting_the_mean_is_measured_on_other_samples() -> None:
    test = Fields(torch.zeros(1, 1, 1), torch.tensor([[[4.0]]]))
    assert error_of_the_mean(torch.tensor([[2.0]]), [test]) == pytest.approx(0.5)
    assert error_of_the_mean(torch.tensor([[2.0]]), []) is None
