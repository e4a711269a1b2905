"""Statistics over ranks: two threads stand in for two processes, whose messages are real sums."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lsm_core.layers import rank_statistics as shared
from lsm_core.layers.normalization import NORMALIZATIONS


class Messages:
    """Sums over threads, as `all_reduce` does over processes."""

    def __init__(self, n_ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_sent = 0
        self._arrived = threading.Barrier(n_ranks)
        self._lock = threading.Lock()
        self._sum: Any = 0
        monkeypatch.setattr(shared.distributed, "all_reduce", self.all_reduce)
        monkeypatch.setattr("lsm_core.layers.normalization.n_ranks", lambda: n_ranks)

    def all_reduce(self, message: Tensor) -> None:
        with self._lock:
            self._sum = self._sum + message.clone()
            self.n_sent += 1
        self._arrived.wait(timeout=60)
        message.copy_(self._sum)
        if self._arrived.wait(timeout=60) == 0:
            self._sum = 0
        self._arrived.wait(timeout=60)


def test_two_ranks_normalise_as_one_with_a_message_each_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    # Far from zero: a sum of squares in float32 would have lost the variance.
    rows, outer = 1000 + torch.randn(11, 3), torch.randn(11, 3)
    theirs = nn.BatchNorm1d(3).double()
    theirs.weight.data.normal_()
    whole = rows.double().requires_grad_()
    expected = theirs(whole)
    expected.backward(outer.double())

    messages = Messages(2, monkeypatch)
    layers = [NORMALIZATIONS["batch"](3) for _ in range(2)]
    shares = [slice(0, 4), slice(4, 11)]  # not equally many

    def work(rank: int) -> tuple[Tensor, Tensor]:
        layer, own = layers[rank], rows[shares[rank]].clone().requires_grad_()
        layer.weight.data.copy_(theirs.weight)
        normalize = layer.function()
        with torch.no_grad():
            normalize(own, *layer.parameters_in_use())  # as where it is computed again later
        found = normalize(own, *layer.parameters_in_use())
        gradients = torch.autograd.grad(
            found, (own, layer.weight, layer.bias), outer[shares[rank]], retain_graph=False
        )
        layer.weight.grad, layer.bias.grad = gradients[1:]
        return found.detach(), gradients[0]

    with ThreadPoolExecutor(2) as ranks:
        found = list(ranks.map(work, range(2)))
    # A mean of 1000 is rounded in float32 by this much, and every normalised value with it.
    rounding = 1000 * torch.finfo(torch.float32).eps

    def check(ours: Tensor, exact: Tensor, n_values: float) -> None:
        torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=n_values * rounding)

    check(torch.cat([y for y, _ in found]), expected, 2)
    check(torch.cat([g for _, g in found]), whole.grad, 2)
    for name in ("weight", "bias"):
        total = sum(getattr(layer, name).grad for layer in layers)
        check(total, getattr(theirs, name).grad, float(outer.abs().sum(0).max()))
    for layer in layers:
        for name in ("running_mean", "running_var"):
            check(getattr(layer, name), getattr(theirs, name), 1)
        assert layer.num_batches_tracked == theirs.num_batches_tracked
    assert messages.n_sent == 2 * 2
