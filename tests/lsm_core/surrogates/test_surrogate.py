import pytest
import torch

from lsm_core.surrogates.surrogate import predict


def test_batch_statistics_are_used_when_asked_for_and_leave_the_model_as_it_was() -> None:
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm1d(1)
    model = torch.nn.Sequential(torch.nn.Flatten(), norm, torch.nn.Unflatten(1, (1, 1))).train()
    inputs = 5 + 2 * torch.randn(40, 1, 1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    by_batch = predict(model, inputs, 40, "batch")
    assert by_batch.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert predict(model, inputs, 40).mean().item() == pytest.approx(inputs.mean().item(), rel=1e-3)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
