"""Print how fast batches come out of a dataset, beside numpy and torch on the same data.

    python tests/measurements/batch_throughput.py                  # 1.3 GB, a budget of 256 MB
    python tests/measurements/batch_throughput.py 2000             # other numbers of samples

Samples look like Navier-Stokes on 64 x 64 points with ten frames in and ten out: smooth fields
with a little noise, which hardly compress. Rates are in MB of decoded float32 a second, the median
of several epochs, all in one process and one run. `numpy.load` reads the same values from .npy
files, which the system holds in memory. `indexing a tensor` takes the same random batches from
tensors that hold all samples, with one thread and with all.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from storage.datasets.batches import Batches
from storage.datasets.reader import Part, open_dataset
from storage.datasets.schema import DatasetSchema, VariableSchema
from storage.datasets.writer import DatasetJob
from storage.location import Location

SHAPE = (64, 64, 10)
NAMES = ("vorticity_history", "vorticity_future")
BATCH_SIZE = 20
BUDGET = 256 * 10**6
EPOCHS = 5


def main() -> None:
    n_samples = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    with tempfile.TemporaryDirectory() as folder:
        location = Location.parse(f"{folder}/samples.zarr")
        write(location, n_samples)
        part = open_dataset(location).part("train", NAMES)
        arrays = part[:]
        n_bytes = sum(values.nbytes for values in arrays.values())
        print(f"{n_samples} samples of {n_bytes / n_samples / 1e3:.0f} kB, {n_bytes / 1e9:.2f} GB")
        stream(part, arrays, Path(folder), n_bytes)
        memory(part, arrays, n_bytes)


def write(location: Location, n_samples: int) -> None:
    schema = DatasetSchema(
        variables=tuple(
            VariableSchema(
                name=name,
                dims=("x", "y", "frame"),
                shape=SHAPE,
                role=role,
                unit="1",
                description="",
            )
            for name, role in zip(NAMES, ("input", "target"), strict=True)
        ),
        coordinates={},
        split_sizes={"train": n_samples, "validation": 0, "test": 0},
        samples_per_block=64,
        attributes={"space": ["x", "y"]},
        provenance={},
        environment={},
    )
    job = DatasetJob(location=location, schema=schema)
    job.begin()
    random = np.random.default_rng(0)
    x = np.linspace(0, 2 * np.pi, SHAPE[0], dtype=np.float32)[:, None, None]
    for index in range(schema.n_blocks):
        n_block = len(schema.block(index))
        block = {}
        for name in NAMES:
            phase = random.random((n_block, 1, 1, 1), dtype=np.float32)
            noise = random.standard_normal((n_block, *SHAPE), dtype=np.float32)
            block[name] = np.sin(x + phase) + np.float32(0.01) * noise
        job.write_block(index, block)
    job.finish()


def stream(part: Part, arrays: dict[str, np.ndarray], folder: Path, n_bytes: int) -> None:
    """Compare batches from a store larger than the budget with numpy.load."""
    batches = Batches(part, batch_size=BATCH_SIZE, seed=0, memory=BUDGET)
    assert not batches.in_memory
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)

    def load() -> Iterable[Any]:
        return (np.load(folder / f"{name}.npy") for name in NAMES)

    show(f"from the store, budget {BUDGET / 1e6:.0f} MB", rate(batches.epoch, n_bytes))
    show("numpy.load of the same values", rate(lambda _: load(), n_bytes))


def memory(part: Part, arrays: dict[str, np.ndarray], n_bytes: int) -> None:
    """Compare batches from memory with indexing a tensor."""
    batches = Batches(part, batch_size=BATCH_SIZE, seed=0, memory=n_bytes)
    assert batches.in_memory
    next(iter(batches.epoch(0)))
    tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}

    def indexed(number: int) -> Iterable[Any]:
        for indices in torch.from_numpy(batches.order(number)).split(BATCH_SIZE):
            yield {name: values[indices] for name, values in tensors.items()}

    n_threads = torch.get_num_threads()
    ours = rate(batches.epoch, n_bytes)
    show("from memory", ours)
    for threads in dict.fromkeys((1, n_threads)):
        torch.set_num_threads(threads)
        theirs = rate(indexed, n_bytes)
        note = f"from memory is {ours / theirs:.0%} of it"
        show(f"indexing a tensor, {threads} threads", theirs, note)


def rate(epoch: Callable[[int], Iterable[Any]], n_bytes: int) -> float:
    """Return the bytes a second of going through epochs and dropping what comes."""
    seconds = []
    for number in range(EPOCHS):
        started = time.perf_counter()
        for _ in epoch(number):
            pass
        seconds.append(time.perf_counter() - started)
    return n_bytes / statistics.median(seconds)


def show(what: str, bytes_a_second: float, note: str = "") -> None:
    print(f"{what:<36} {bytes_a_second / 1e6:>7.0f} MB/s  {note}", flush=True)


if __name__ == "__main__":
    main()
