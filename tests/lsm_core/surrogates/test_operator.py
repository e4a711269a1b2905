import pytest
import torch
from torch import nn

from lsm_core.models.catalogue import build_model
from lsm_core.models.lsm import release_form
from lsm_core.problems.shape import ProblemShape
from lsm_core.surrogates.rollout import Rollout


def one_step_model(space: tuple[int, ...], n_history: int) -> nn.Module:
    torch.manual_seed(0)
    shape = ProblemShape(space=space, n_inputs=n_history, n_outputs=1)
    return build_model(release_form(width=8, n_scales=2), shape).eval()


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("space", [(8,), (8, 6)])
def test_a_rollout_equals_the_loop_written_out(batch, space):
    model = one_step_model(space, n_history=4)
    history = torch.randn(batch, *space, 4)

    frames = [history[..., i] for i in range(4)]
    for step in range(6):
        frames.append(model(torch.stack(frames[step : step + 4], dim=-1))[..., 0])

    predicted = Rollout(model, 6)(history)
    torch.testing.assert_close(predicted, torch.stack(frames[4:], dim=-1))


def test_a_rollout_longer_than_its_history_reads_only_its_own_frames():
    fibonacci = Rollout(nn.Linear(2, 1, bias=False), 8)
    with torch.no_grad():
        fibonacci.model.weight.fill_(1.0)
    predicted = fibonacci(torch.ones(1, 1, 2))
    assert predicted.flatten().tolist() == [2, 3, 5, 8, 13, 21, 34, 55]


def test_the_oldest_frame_comes_first():
    keep_oldest = Rollout(nn.Linear(3, 1, bias=False), 3)
    with torch.no_grad():
        keep_oldest.model.weight.copy_(torch.tensor([[1.0, 0.0, 0.0]]))
    assert keep_oldest(torch.tensor([[[7.0, 8.0, 9.0]]])).flatten().tolist() == [7, 8, 9]


def test_the_gradient_of_the_last_frame_passes_through_every_step():
    growth = 1.5
    rollout = Rollout(nn.Linear(1, 1, bias=False), 5)
    with torch.no_grad():
        rollout.model.weight.fill_(growth)
    history = torch.ones(1, 2, 1, requires_grad=True)

    rollout(history)[..., -1].sum().backward()

    # The last frame is growth^5 times the first: d/d(growth) counts all five uses of it.
    assert history.grad.flatten().tolist() == pytest.approx([growth**5] * 2)
    assert rollout.model.weight.grad.item() == pytest.approx(2 * 5 * growth**4)


def test_every_parameter_of_a_model_learns_from_the_last_frame():
    model = one_step_model((8, 8), n_history=3)
    Rollout(model, 4)(torch.randn(1, 8, 8, 3))[..., -1].square().sum().backward()
    # The bias of a key cancels in the softmax over points.
    silent = [
        name
        for name, parameter in model.named_parameters()
        if not name.endswith("key.bias") and not parameter.grad.abs().max() > 0
    ]
    assert silent == []


def test_a_rollout_has_at_least_one_step():
    with pytest.raises(ValueError, match="n_steps must be at least 1"):
        Rollout(nn.Linear(2, 1), 0)
