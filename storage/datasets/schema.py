"""What a dataset holds, said before any of it is written."""

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from math import ceil, prod
from typing import Any

import numpy as np

SPLITS = ("train", "validation", "test")
"""The parts of a dataset, in the order of their samples and of the integers that name them."""

CHUNK_BYTES = 2**21

PACKAGES = ("numpy", "scipy", "torch", "zarr")


@dataclass(frozen=True, kw_only=True)
class VariableSchema:
    """One array of a dataset, without its sample axis."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    role: str
    unit: str
    description: str
    dtype: str = "float32"

    @property
    def sample_bytes(self) -> int:
        """Return the size of one sample."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, kw_only=True)
class DatasetSchema:
    """A dataset: its variables, the coordinates they share, its parts and its blocks.

    A block is what is written at once: whole shards of consecutive samples. `provenance` is plain
    data that decides the values (which solver, which seeds); `environment` is kept for the reader
    and decides nothing.
    """

    variables: tuple[VariableSchema, ...]
    coordinates: Mapping[str, np.ndarray[Any, np.dtype[Any]]]
    split_sizes: Mapping[str, int]
    samples_per_block: int
    attributes: Mapping[str, Any]
    provenance: Mapping[str, Any]
    environment: Mapping[str, Any]

    def __post_init__(self) -> None:
        if tuple(self.split_sizes) != SPLITS:
            raise ValueError(f"the parts must be {SPLITS}, got {tuple(self.split_sizes)}")
        if self.n_samples < 1 or min(self.split_sizes.values()) < 0:
            raise ValueError(f"a dataset needs samples, got {dict(self.split_sizes)}")
        if self.samples_per_block < 1:
            raise ValueError(f"a block needs samples, got {self.samples_per_block}")

    @property
    def n_samples(self) -> int:
        """Return the number of samples of all parts."""
        return sum(self.split_sizes.values())

    @property
    def n_blocks(self) -> int:
        """Return the number of blocks."""
        return ceil(self.n_samples / self.samples_per_block)

    def block(self, index: int) -> range:
        """Return the samples of one block."""
        start = index * self.samples_per_block
        return range(start, min(start + self.samples_per_block, self.n_samples))

    def samples_per_chunk(self, variable: VariableSchema) -> int:
        """Return how many samples are compressed together.

        The largest divisor of a block that stays within a few MiB, and at least one sample.
        """
        fitting = max(1, CHUNK_BYTES // variable.sample_bytes)
        return max(
            size
            for size in range(1, self.samples_per_block + 1)
            if self.samples_per_block % size == 0 and (size <= fitting or size == 1)
        )

    @property
    def split(self) -> np.ndarray[Any, np.dtype[np.int8]]:
        """Return the part of every sample, as an index into SPLITS."""
        sizes = [self.split_sizes[name] for name in SPLITS]
        return np.repeat(np.arange(len(SPLITS), dtype=np.int8), sizes)

    @property
    def recipe(self) -> str:
        """Return the hash of everything that decides the content."""
        return digest_of(
            {
                "variables": [vars(variable) for variable in self.variables],
                "coordinates": {name: values.tolist() for name, values in self.coordinates.items()},
                "split_sizes": dict(self.split_sizes),
                "samples_per_block": self.samples_per_block,
                "attributes": dict(self.attributes),
                "provenance": dict(self.provenance),
            }
        )


def environment() -> dict[str, Any]:
    """Return the interpreter, the machine's kind and the packages that decide numbers."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        **{package: version(package) for package in PACKAGES},
    }


def digest_of(plain: Any) -> str:
    """Return the sha256 of plain data, equal for equal values on any machine."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
