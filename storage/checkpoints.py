"""Checkpoints of a run: bytes that survive whatever happens while they are written."""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage.errors import CheckpointCorrupt
from storage.location import Location

KEPT = 2
BEST = "best.weights"


@dataclass(frozen=True)
class Checkpoints:
    """The folder of one run: numbered checkpoints, each with its checksum, and the result.

    A checkpoint counts once its checksum file is there, which is written after it. The last two
    are kept, so that a damaged file costs one interval, not the run.
    """

    location: Location

    def save(self, step: int, content: bytes) -> None:
        """Keep a checkpoint; older ones beyond the last two are removed."""
        name = f"{step:08d}"
        (self.location / f"{name}.checkpoint").write_bytes(content)
        checksum = hashlib.sha256(content).hexdigest()
        (self.location / f"{name}.sha256").write_bytes(checksum.encode())
        for old in self._steps()[:-KEPT]:
            (self.location / f"{old}.sha256").remove()
            (self.location / f"{old}.checkpoint").remove()

    def latest(self) -> bytes | None:
        """Return the newest whole checkpoint, or None if the run has none."""
        steps = self._steps()
        for name in reversed(steps):
            try:
                content = (self.location / f"{name}.checkpoint").read_bytes()
                checksum = (self.location / f"{name}.sha256").read_bytes().decode()
            except (FileNotFoundError, UnicodeDecodeError):
                continue
            if hashlib.sha256(content).hexdigest() == checksum:
                return content
        if steps:
            raise CheckpointCorrupt(
                f"none of the {len(steps)} checkpoints in {self.location} has its checksum; "
                "remove the folder to train from the start"
            )
        return None

    def save_best(self, content: bytes) -> None:
        """Keep the weights of the best epoch so far, in place of those before."""
        (self.location / BEST).write_bytes(content)

    def best(self) -> bytes:
        """Return the weights of the best epoch; FileNotFoundError if there are none."""
        return (self.location / BEST).read_bytes()

    def write_result(self, result: dict[str, Any]) -> None:
        """Keep the outcome of the run; with it the run counts as finished."""
        text = json.dumps(result, indent=1, sort_keys=True)
        (self.location / "result.json").write_bytes(text.encode())

    def result(self) -> dict[str, Any] | None:
        """Return the outcome of the run, or None while it is not finished."""
        try:
            return dict(json.loads((self.location / "result.json").read_bytes()))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CheckpointCorrupt(
                f"{self.location / 'result.json'} is not readable: {error}; "
                "remove it to evaluate the run again"
            ) from error

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep some arrays beside the result."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        (self.location / f"{name}.npz").write_bytes(buffer.getvalue())

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return arrays kept with the run; FileNotFoundError if there are none."""
        content = (self.location / f"{name}.npz").read_bytes()
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {key: file[key] for key in file.files}

    def _steps(self) -> list[str]:
        return [name.removesuffix(".sha256") for name in self.location.names() if _is_mark(name)]


def _is_mark(name: str) -> bool:
    return name.endswith(".sha256") and not name.startswith(".")
