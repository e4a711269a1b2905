"""Single samples kept until their block is whole, for problems that take long to solve."""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storage.location import Location


@dataclass(frozen=True)
class SampleSpool:
    """A folder beside a dataset in the making, one file a solved sample.

    A process that dies then loses the sample it was solving and no other.
    """

    location: Location

    @classmethod
    def beside(cls, dataset: Location) -> "SampleSpool":
        """Return the spool of a dataset."""
        return cls(Location(f"{dataset.url}.samples"))

    def put(self, sample: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep a solved sample."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **dict(arrays))
        self._file(sample).write_bytes(buffer.getvalue())

    def get(self, sample: int) -> dict[str, NDArray[Any]] | None:
        """Return a solved sample, or None if it has to be solved."""
        try:
            content = self._file(sample).read_bytes()
        except FileNotFoundError:
            return None
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except Exception:
            # numpy and zipfile raise whatever damaged bytes lead them to; solving mends it.
            return None

    def discard(self, samples: Iterable[int]) -> None:
        """Forget samples whose block is written."""
        for sample in samples:
            self._file(sample).remove()

    def _file(self, sample: int) -> Location:
        return self.location / f"{sample:06d}.npz"
