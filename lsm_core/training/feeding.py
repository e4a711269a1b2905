"""How batches come to the device that trains on them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from lsm_core.training.batches import Batches, Fields

ROOM_FOR_SAMPLES = 0.25
"""Part of a GPU's free memory that training samples may take; the rest is for the model."""


@dataclass(frozen=True)
class BatchesAhead:
    """Batches that are made and brought to a GPU while the one before is trained on.

    A thread takes the next batch from the host's memory or from the store and copies it from pinned
    memory, beside the work of the GPU. They are the same batches in the same order.
    """

    batches: Batches
    device: torch.device

    @property
    def n_samples(self) -> int:
        """Return the number of samples of an epoch."""
        return self.batches.n_samples

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, number: int, first: int = 0) -> Iterator[Fields]:
        """Yield the batches of one epoch from the `first` on, each one ready on the device."""
        coming = self.batches.epoch(number, first)
        carrier = _Carrier(self.device)
        with ThreadPoolExecutor(1, thread_name_prefix="batches") as ahead:
            waiting = ahead.submit(_next, coming, carrier)
            while (ready := waiting.result()) is not None:
                waiting = ahead.submit(_next, coming, carrier)
                yield carrier.hand_over(*ready)


def brought_to(device: torch.device, batches: Batches) -> Batches:
    """Return batches that are brought to a GPU ahead of their use; on a CPU they are there."""
    return BatchesAhead(batches, device) if device.type == "cuda" else batches


def fits_on(device: torch.device, fields: Fields) -> bool:
    """Return whether samples may stay on a GPU while a model trains on it."""
    if device.type != "cuda":
        return False
    n_bytes = sum(each.numel() * each.element_size() for each in (fields.inputs, fields.targets))
    free, _ = torch.cuda.mem_get_info(device)
    return n_bytes <= ROOM_FOR_SAMPLES * free


def _next(coming: Iterator[Fields], carrier: "_Carrier") -> tuple[Fields, Any] | None:
    batch = next(coming, None)
    return None if batch is None else carrier.bring(batch)


class _Carrier:
    """Copies to a device on a stream of its own; on a CPU there is nothing to copy."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None

    def bring(self, batch: Fields) -> tuple[Fields, Any]:
        """Begin the copy, in the thread that reads, and return what tells that it is done."""
        if self._stream is None:
            return batch.to(self.device), None
        with torch.cuda.stream(self._stream):
            return batch.pinned().to(self.device), self._stream.record_event()

    def hand_over(self, batch: Fields, copied: Any) -> Fields:
        """Let what comes next on the device wait for the copy, and the memory for its use."""
        if self._stream is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(copied)
            for tensor in (batch.inputs, batch.targets):
                tensor.record_stream(current)
        return batch
