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
MARK = b"sha256:"
"""What the checksum at the end of a file begins with."""


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
        # With the checksum in the same file, too: of two processes that save the same step, one may
        # write the last file and the other the last mark.
        trailer = _trailer(content)
        (self.location / f"{name}.checkpoint").write_bytes(content + trailer)
        checksum = trailer.removeprefix(MARK).hex()
        (self.location / f"{name}.sha256").write_bytes(checksum.encode())
        for old in self._steps()[:-KEPT]:
            (self.location / f"{old}.sha256").remove()
            (self.location / f"{old}.checkpoint").remove()

    def latest(self) -> bytes | None:
        """Return the newest whole checkpoint, or None if the run has none."""
        steps = self._steps()
        for name in reversed(steps):
            try:
                kept = (self.location / f"{name}.checkpoint").read_bytes()
                checksum = (self.location / f"{name}.sha256").read_bytes().decode()
            except (FileNotFoundError, UnicodeDecodeError):
                continue
            content = kept[: -len(_trailer(b""))]
            if kept.endswith(_trailer(content)):
                return content
            if hashlib.sha256(kept).hexdigest() == checksum:
                return kept  # written before files had a checksum
        if steps:
            raise CheckpointCorrupt(
                f"none of the {len(steps)} checkpoints in {self.location} has its checksum; "
                "remove the folder to train from the start"
            )
        return None

    def save_best(self, content: bytes) -> None:
        """Keep the weights of the best epoch so far, in place of those before."""
        # The checksum stands in the same file: two files cannot be replaced in one step.
        (self.location / BEST).write_bytes(content + _trailer(content))

    def best(self) -> bytes:
        """Return the weights of the best epoch; FileNotFoundError if there are none."""
        kept = (self.location / BEST).read_bytes()
        content = kept[: -len(_trailer(b""))]
        if kept.endswith(_trailer(content)):
            return content
        if _is_as_long_as_it_says(kept):
            return kept  # written before files had a checksum
        raise CheckpointCorrupt(
            f"{self.location / BEST} does not have its checksum; remove the folder to train from "
            "the start"
        )

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
        except (ValueError, TypeError, RecursionError) as error:
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
        kept = self.location / f"{name}.npz"
        content = kept.read_bytes()
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                return {key: file[key] for key in file.files}
        except Exception as error:
            # numpy and zipfile raise whatever damaged bytes lead them to.
            raise CheckpointCorrupt(
                f"{kept} cannot be read ({type(error).__name__}: {error}); remove the folder to "
                "train again"
            ) from error

    def _steps(self) -> list[str]:
        return [name.removesuffix(".sha256") for name in self.location.names() if _is_mark(name)]


def _trailer(content: bytes) -> bytes:
    return MARK + hashlib.sha256(content).digest()


def _is_as_long_as_it_says(content: bytes) -> bool:
    """Return whether the header of safetensors describes all bytes that follow it."""
    start = 8 + int.from_bytes(content[:8], "little")
    try:
        tensors = json.loads(content[8:start])
        ends = [entry["data_offsets"][1] for name, entry in tensors.items() if name[:2] != "__"]
        return start + max(ends, default=0) == len(content)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return False


def _is_mark(name: str) -> bool:
    return name.endswith(".sha256") and not name.startswith(".")
