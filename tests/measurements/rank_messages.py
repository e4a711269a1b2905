"""How ranks should exchange gradients: in one message, or in parts while the backward pass runs.

    python -m tests.measurements.rank_messages --ranks 2 --steps 10

Both take the same steps of LSM on two processes of this machine, by gloo, in turn. Parts (buckets)
are sent as soon as all of their gradients are there, as torch's DDP does. Prints the median of a
step, and how many messages it sends.
"""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch import Tensor, distributed, nn

from flows.steps.training.devices import joined_ranks
from flows.steps.training.isolation import Report, run_isolated
from lsm_core.layers import ranks as ranks_module
from lsm_core.models.catalogue import build_model
from lsm_core.models.lsm import release_form
from lsm_core.problems.shape import ProblemShape
from lsm_core.training import loop
from lsm_core.training.batches import Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.state import start_training

BUCKET = 2**20
"""Values in a part: 4 MB."""


class Buckets:
    """Sums gradients in parts, each begun by the hook of its last parameter."""

    def __init__(self, model: nn.Module) -> None:
        self.parts: list[list[nn.Parameter]] = [[]]
        for parameter in reversed(list(model.parameters())):
            if sum(each.numel() for each in self.parts[-1]) > BUCKET:
                self.parts.append([])
            self.parts[-1].append(parameter)
        part_of = {p: n for n, part in enumerate(self.parts) for p in part}
        self.missing = [len(part) for part in self.parts]
        self.sent: list[tuple[list[nn.Parameter], Tensor, Any]] = []
        self.next = 0
        for parameter, number in part_of.items():
            parameter.register_post_accumulate_grad_hook(lambda _, n=number: self.note(n))

    def note(self, number: int) -> None:
        """Take in that a gradient is there; parts leave in their order, the same on every rank."""
        self.missing[number] -= 1
        while self.next < len(self.parts) and self.missing[self.next] == 0:
            self.send(self.parts[self.next])
            self.next += 1

    def send(self, part: list[nn.Parameter]) -> None:
        message = torch.cat([p.grad.reshape(-1) for p in part if p.grad is not None])
        self.sent.append((part, message, distributed.all_reduce(message, async_op=True)))

    def finish(self, tensors: list[Tensor]) -> None:
        """Stand in for the one message: only the loss is left to sum, and all is waited for."""
        for part in self.parts[self.next :]:
            self.send(part)
        distributed.all_reduce(tensors[0])
        for part, message, sending in self.sent:
            sending.wait()
            own = [p.grad for p in part if p.grad is not None]
            values = message.split([g.numel() for g in own])
            torch._foreach_copy_(own, [v.view_as(g) for g, v in zip(own, values, strict=True)])
        self.missing, self.sent, self.next = [len(part) for part in self.parts], [], 0


def measure(size: int, batch: int, width: int, n_steps: int, report: Report) -> dict[str, Any]:
    """Return the medians and the messages of both ways, on one of the ranks."""
    torch.set_num_threads(1)
    with joined_ranks(torch.device("cpu")):
        shape = ProblemShape(space=(size, size), n_inputs=1, n_outputs=1)
        fields = Fields(torch.rand(batch, size, size, 1), torch.rand(batch, size, size, 1))
        config, ways = TrainingConfig(schedule="constant"), {}
        for name in ("one message", "parts"):
            torch.manual_seed(0)
            model = build_model(release_form(width=width), shape)
            own = Buckets(model).finish if name == "parts" else ranks_module.sum_in_place
            ways[name] = start_training(model, config, n_batches=1), own
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        sent, losses = {}, {}
        for _ in range(n_steps + 1):  # in turn, so that both meet the same load; the first warms up
            for name, (state, own) in ways.items():
                loop.sum_in_place = own
                distributed.barrier()
                with counted() as count:
                    began = time.perf_counter()
                    losses[name], _ = loop.train_step(state, fields, config).read()
                    seconds[name].append(time.perf_counter() - began)
                sent[name] = count[0]
    return {
        name: {"seconds": median(seconds[name][1:]), "messages": sent[name], "loss": losses[name]}
        for name in ways
    }


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the messages of a block."""
    count, send = [0], distributed.all_reduce

    def noted(*arguments: Any, **options: Any) -> Any:
        count[0] += 1
        return send(*arguments, **options)

    distributed.all_reduce = noted
    try:
        yield count
    finally:
        distributed.all_reduce = send


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--width", type=int, default=32)
    chosen = parser.parse_args()
    found = run_isolated(
        measure, chosen.size, chosen.batch, chosen.width, chosen.steps, n_ranks=chosen.ranks
    )
    print(f"{chosen.ranks} ranks, gloo, a thread each, load {os.getloadavg()[0]:.1f}")
    for name, figures in found.items():
        milliseconds, messages = 1000 * figures["seconds"], figures["messages"]
        print(f"{name:12} {milliseconds:8.1f} ms a step, {messages} messages", end="")
        print(f", loss {figures['loss']:.6f}")


if __name__ == "__main__":
    main()
