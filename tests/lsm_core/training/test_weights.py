"""Points that a sample does not have: no loss, no error and no scale knows of them."""

import torch
from torch import Tensor, nn

from lsm_core.evaluation.evaluate import Breakdown, evaluate, relative_l2, sample_errors
from lsm_core.surrogates.normalization import MARGIN, Moments, normalization
from lsm_core.surrogates.surrogate import Surrogate
from lsm_core.training.batches import BatchesInMemory, Fields, permutations
from lsm_core.training.config import TrainingConfig
from lsm_core.training.loop import EpochReport, fit
from lsm_core.training.state import start_training


class PointwiseModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Linear(3, 2)

    def forward(self, inputs: Tensor, is_there: Tensor | None = None) -> Tensor:
        return self.layers(inputs)


def whole_and_lengthened() -> tuple[Fields, Fields]:
    generator = torch.Generator().manual_seed(3)
    inputs, targets = (torch.rand(6, 10, n, generator=generator) for n in (3, 2))
    weights = torch.rand(6, 10, generator=generator) + 0.1
    more = torch.full((6, 4, 1), 1e5)
    return Fields(inputs, targets, weights), Fields(
        torch.cat([inputs, more.expand(-1, -1, 3)], 1),
        torch.cat([targets, more.expand(-1, -1, 2)], 1),
        torch.cat([weights, torch.zeros(6, 4)], 1),
    )


def surrogate(fields: Fields) -> Surrogate:
    there = fields.at_points()
    scales = [
        normalization(scheme, Moments.of([values]))
        for scheme, values in (("box", there.inputs), ("channel", there.targets))
    ]
    return Surrogate(PointwiseModel(), *scales)


def test_scales_losses_and_errors_are_those_without_them() -> None:
    curves, errors = [], []
    for fields in whole_and_lengthened():
        model = surrogate(fields)
        config = TrainingConfig(epochs=3, batch_size=2, schedule="constant")
        state = start_training(model, config, 3)
        batches = BatchesInMemory(fields, 2, permutations(6, 0))
        reports = [r for r in fit(state, batches, config) if isinstance(r, EpochReport)]
        curves.append([r.train_loss for r in reports])
        errors.append(evaluate(model, [fields], 4, breakdown=Breakdown(channels=("u", "v"))))
    assert torch.allclose(*map(torch.tensor, curves))
    assert errors[0].keys() == errors[1].keys()
    assert torch.allclose(*(torch.tensor(list(each.values())) for each in errors), rtol=1e-5)


def test_what_is_kept_of_samples_is_that_without_them() -> None:
    one, other = (
        sample_errors(surrogate(fields), [fields.to(torch.device("cpu"))], 4)
        for fields in whole_and_lengthened()
    )
    for name, values in one.items():
        assert torch.allclose(values, other[name], rtol=1e-5), name


def test_weights_are_those_of_an_integral() -> None:
    predicted, target = torch.rand(2, 5, 1), torch.rand(2, 5, 1)
    doubled = torch.tensor([0, 1, 1, 2, 3, 4])
    weights = torch.tensor([1.0, 2.0, 1.0, 1.0, 1.0]).expand(2, -1)
    twice = relative_l2(predicted[:, doubled], target[:, doubled])
    assert torch.allclose(relative_l2(predicted, target, weights), twice)


def test_a_box_brings_the_range_into_the_unit_interval() -> None:
    values = torch.tensor([[[-3.0, 5.0]], [[7.0, 5.0]]])
    scaled = normalization("box", Moments.of([values])).encode(values)
    assert scaled[..., 0].min() >= MARGIN / 2
    assert scaled[..., 0].max() <= 1 - MARGIN / 2
    assert scaled.isfinite().all()
