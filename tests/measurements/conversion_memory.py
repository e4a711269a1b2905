"""Print memory and time of converting 2 GB files into the store.

    python tests/measurements/conversion_memory.py                   # in a temporary folder
    python tests/measurements/conversion_memory.py --folder DIR      # files are kept there
    python tests/measurements/conversion_memory.py --only npy

The files are synthetic, with the names and axes of the official ones: plasticity as MATLAB 7.3
(compressed, in chunks) and as MATLAB 5, both with the samples innermost, and pipe as .npy.
Each conversion runs in a process of its own. Memory is the peak of resident memory, mapped files
included, over that after the imports (Linux only). The last column is a second call, which has
nothing to do.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
from scipy.io import savemat

from storage.location import Location
from storage.official.catalogue import PublishedBenchmark, published_benchmarks
from storage.official.conversion import convert_published
from storage.official.download import download_published

CASES = ("mat 7.3", "npy", "mat 5")
N_PIPES = 5000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--one", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments.one, arguments.folder)))
        return
    print(f"{'file':<8} {'largest array':>14} {'peak':>9} {'seconds':>8} {'MB/s':>6} {'again':>7}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for case in [arguments.only] if arguments.only else CASES:
            prepare(case, folder)
            command = [sys.executable, __file__, "--one", case, "--folder", str(folder)]
            finished = subprocess.run(command, check=True, capture_output=True, text=True)
            report = json.loads(finished.stdout)
            print(
                f"{case:<8} {report['largest'] / 1e9:>11.2f} GB {report['peak'] / 2**20:>5.0f} MiB"
                f" {report['seconds']:>8.1f} {report['largest'] / report['seconds'] / 1e6:>6.0f}"
                f" {report['again']:>5.2f} s",
                flush=True,
            )


def benchmark_of(case: str) -> PublishedBenchmark:
    """Return the benchmark of a case, all of whose samples are used."""
    official = published_benchmarks()["pipe" if case == "npy" else "plasticity"]
    n_samples = N_PIPES if case == "npy" else official.n_samples[0]
    split = {
        "train": range(n_samples - 200),
        "validation": range(n_samples - 200, n_samples - 100),
        "test": range(n_samples - 100, n_samples),
    }
    return replace(
        official,
        files=tuple(replace(file, sha256=None, urls=(), n_bytes=None) for file in official.files),
        n_samples=(n_samples,),
        splits={"release": split, "paper": split},
    )


def root_of(case: str, folder: Path) -> Location:
    return Location.parse(str(folder / case.replace(" ", "-")))


def prepare(case: str, folder: Path) -> None:
    """Write the files of a case where a download would have put them, and lock them."""
    benchmark, root = benchmark_of(case), root_of(case, folder)
    assert root.local_path is not None
    raw = root.local_path / "raw" / benchmark.folder
    if not raw.exists():
        raw.mkdir(parents=True)
        write_pipe(raw) if case == "npy" else write_plasticity(raw, case)
    download_published(benchmark, root)
    (root / "datasets").remove()


def write_pipe(folder: Path) -> None:
    random = np.random.default_rng(0)
    field = random.standard_normal((129, 129))
    for name, shape in (("X", ()), ("Y", ()), ("Q", (3,))):
        path = folder / f"Pipe_{name}.npy"
        np.lib.format.open_memmap(path, "w+", "f8", (N_PIPES, *shape, 129, 129))
        for start in range(0, N_PIPES, 100):
            factor = random.standard_normal((100, *shape, 1, 1))
            np.lib.format.open_memmap(path, "r+")[start : start + 100] = factor * field


def write_plasticity(folder: Path, case: str) -> None:
    random = np.random.default_rng(0)
    die = random.standard_normal((987, 101))
    path = folder / "plas_N987_T20.mat"
    field = np.round(random.standard_normal((4, 20, 31, 101)), 2)
    if case == "mat 5":
        output = np.empty((987, 101, 31, 20, 4), order="F")
        for sample in range(987):
            output[sample] = (sample + field).T
        savemat(path, {"input": die, "output": output})
        return
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("input", data=die.T)
        # MATLAB compresses, and cuts all axes.
        stored = file.create_dataset(
            "output",
            (4, 20, 31, 101, 987),
            "f8",
            chunks=(1, 5, 8, 26, 124),
            compression="gzip",
            compression_opts=1,
        )
        for start in range(0, 987, 124):
            samples = np.arange(start, min(start + 124, 987), dtype=np.float64)
            stored[..., start : start + 124] = samples + field[..., None]
    with path.open("r+b") as opened:
        opened.write(b"MATLAB 7.3 MAT-file".ljust(116) + bytes(8) + b"\x00\x02IM")


def measured(case: str, folder: Path) -> dict[str, float]:
    import dask.array  # noqa: F401 - so that the baseline holds it

    benchmark, root = benchmark_of(case), root_of(case, folder)
    Path("/proc/self/clear_refs").write_text("5")
    baseline = memory("VmRSS")
    started = time.perf_counter()
    convert_published(benchmark, root)
    seconds = time.perf_counter() - started
    peak = memory("VmHWM") - baseline
    started = time.perf_counter()
    convert_published(benchmark, root)
    array = max(
        (variable.array for variable in benchmark.variables),
        key=lambda array: np.prod(benchmark.shape(array, array.files[0])),
    )
    n_values = int(np.prod(benchmark.shape(array, array.files[0])))
    return {
        "largest": 8 * n_values,
        "peak": peak,
        "seconds": seconds,
        "again": time.perf_counter() - started,
    }


def memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
