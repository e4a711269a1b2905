import pytest
import torch

from lsm_core.evaluation.evaluate import error_of_the_mean, evaluate, predict
from lsm_core.evaluation.metrics import relative_l2
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


def test_evaluation_covers_the_last_short_batch_and_leaves_the_mode() -> None:
    inputs = torch.arange(1.0, 8.0).reshape(7, 1, 1)
    model = Doubled().train()
    predicted = predict(model, inputs, batch_size=3)
    torch.testing.assert_close(predicted, 2 * inputs)
    assert model.training
    assert not predicted.requires_grad
    errors = evaluate(model, Fields(inputs, inputs), batch_size=3)
    assert errors == pytest.approx({"rel_l2": 1.0, "rel_l2_median": 1.0, "rel_l2_max": 1.0})


def test_predicting_the_mean_is_measured_on_other_samples() -> None:
    train = Fields(torch.zeros(2, 1, 1), torch.tensor([[[1.0]], [[3.0]]]))
    test = Fields(torch.zeros(1, 1, 1), torch.tensor([[[4.0]]]))
    assert error_of_the_mean(train, test) == pytest.approx(0.5)
