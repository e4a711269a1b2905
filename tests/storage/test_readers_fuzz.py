"""Every reader, fed with damaged files: an error of our own or values, never anything else.

Each input is read in a process with little memory, watched from outside: a crash of a C library, a
hang and an appetite for memory are found as well as a wrong exception.
"""

import json
import multiprocessing
import random
import resource
import struct
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from storage.checkpoints import Checkpoints
from storage.dataset_reader import open_dataset
from storage.download import FileRecord, read_record
from storage.errors import StorageError
from storage.location import Location
from storage.published_files import as_dask, open_array
from storage.run_journal import Heading, Journal, journals
from storage.sample_spool import SampleSpool
from tests.storage.datasets import small_schema, write_whole
from tests.storage.official_files import small_benchmark, write_mat73

MEMORY = 2**30
SECONDS = 30.0
"""Time for one input; thousands of times what it needs, on a machine that is busy otherwise."""
START_SECONDS = 600.0
N_QUICK = 40
INTERESTING = (0, 1, 2, 7, 8, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63)

processes = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Reader:
    """How whole files are made, how they are read, and what may be said of damaged ones."""

    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    n_inputs: int
    own_errors: Callable[[], tuple[type[Exception], ...]] = lambda: (StorageError,)


def make_mat5(folder: Path) -> None:
    from scipy.io import savemat

    savemat(folder / "file", _arrays(), do_compression=False)


def make_mat7(folder: Path) -> None:
    from scipy.io import savemat

    savemat(folder / "file", _arrays(), do_compression=True)


def make_mat73(folder: Path) -> None:
    write_mat73(folder / "file", _arrays())


def make_npy(folder: Path) -> None:
    with (folder / "file").open("wb") as file:
        np.save(file, _arrays()["u"])


def _arrays() -> dict[str, np.ndarray]:
    values = np.random.default_rng(0).standard_normal((6, 5, 4))
    return {"t": np.arange(5.0), "u": values, "name": np.array([[1, 2, 3]], dtype=np.int16)}


def read_mat(folder: Path) -> Any:
    array = open_array(folder / "file", "u")
    lazy = as_dask(array, folder / "scratch")
    return np.asarray(array[:2]), lazy[:2].compute(scheduler="synchronous")


def read_npy(folder: Path) -> Any:
    array = open_array(folder / "file")
    return np.asarray(array[:2]), as_dask(array, folder / "scratch")[:2].compute(
        scheduler="synchronous"
    )


def make_dataset(folder: Path) -> None:
    write_whole(Location.parse(str(folder / "d.zarr")), small_schema())


def read_dataset(folder: Path) -> Any:
    dataset = open_dataset(Location.parse(str(folder / "d.zarr")))
    part = dataset.part("train", ["before", "after"])
    return part[:], part[0], dataset.statistics("after"), dataset.digest, dataset.provenance


def make_checkpoints(folder: Path) -> None:
    checkpoints = Checkpoints(Location.parse(str(folder / "run")))
    state = save({"model.w": np.arange(6.0)}, {"state": json.dumps({"epoch": 1})})
    for step in (1, 2):
        checkpoints.save(step, state)
    checkpoints.save_best(save({"w": np.arange(6.0)}))
    checkpoints.write_result({"test": {"rel_l2": 0.1}, "epochs": 4})
    checkpoints.write_arrays("showcase", {"u": np.arange(60.0).reshape(3, 20)})
    spool = SampleSpool(Location.parse(str(folder / "spool")))
    spool.put(0, {"u": np.arange(60.0), "seed": np.int64(3)})


def read_checkpoints(folder: Path) -> Any:
    checkpoints = Checkpoints(Location.parse(str(folder / "run")))
    spooled = SampleSpool(Location.parse(str(folder / "spool"))).get(0)
    state = checkpoints.latest()
    assert state is not None
    assert len(state) > 100, "a damaged checkpoint was taken for a whole one"
    return spooled, checkpoints.result(), checkpoints.best(), checkpoints.arrays("showcase")


def make_weights(folder: Path) -> None:
    plain = {"epoch": 1, "notes": {}, "groups": []}
    content = save({"model.w": np.arange(60.0)}, {"state": json.dumps(plain)})
    (folder / "file").write_bytes(content)


def read_weights(folder: Path) -> Any:
    from lsm_core.training.state import model_weights

    return model_weights((folder / "file").read_bytes())


def make_journal(folder: Path) -> None:
    heading = Heading(
        uri="http://127.0.0.1:5000",
        experiment="benchmark",
        artifacts="file:///tmp",
        identity="0123",
        name="lsm burgers",
        tags={"model": "lsm"},
        started=1,
    )
    journal = Journal(folder / "run.jsonl", heading)
    journal.append({"status": "RUNNING", "at": 1}, {"parameters": {"epochs": "4"}, "at": 2})
    for step in range(1, 5):
        journal.append({"step": step, "metrics": {"loss": 0.5 / step}, "at": step})
    journal.append_file("plot.svg", b"<svg/>", 9)
    journal.read()
    journal.note_sent(journal.waiting[1], "run-1")
    journal.append({"tags": {"a": "b"}, "at": 9}, {"status": "FINISHED", "at": 10})
    journal.close()


def read_journal(folder: Path) -> Any:
    found = []
    for journal in journals(folder):
        found.append((journal.heading, list(journal.waiting), journal.is_ended, journal.last_steps))
        if journal.heading is not None:
            journal.append({"step": 9, "metrics": {"loss": 0.1}, "at": 11})
            journal.read()
    return found


def make_record(folder: Path) -> None:
    benchmark = small_benchmark("burgers")
    (file,) = benchmark.files
    lock = folder / "raw" / "lock" / benchmark.folder / f"{file.path}.json"
    lock.parent.mkdir(parents=True)
    record = FileRecord(sha256="0" * 64, n_bytes=10, url="https://example.org/a.mat")
    lock.write_text(json.dumps(vars(record)))


def read_a_record(folder: Path) -> Any:
    benchmark = small_benchmark("burgers")
    record = read_record(benchmark, benchmark.files[0], Location.parse(str(folder)))
    return record and (record.sha256.upper(), record.n_bytes + 1, record.url.upper())


def make_parameters(folder: Path) -> None:
    whole = {
        "benchmarks": ["burgers", "darcy"],
        "models": ["lsm"],
        "preset": "smoke",
        "seeds": [0, 1],
        "training": {"epochs": 3, "learning_rate": 0.001, "fraction": 0.5},
        "source": None,
        "ranks": 1,
    }
    (folder / "file").write_text(json.dumps(whole))


def read_parameters(folder: Path) -> Any:
    """Take JSON as `prefect deployment run` does, up to where training would begin."""
    from flows.errors import BadInput
    from flows.steps.cells import chosen_cell
    from flows.train import train

    try:
        given = json.loads((folder / "file").read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadInput("not JSON") from error
    if not isinstance(given, dict):
        raise BadInput("not a mapping")
    taken = train.validate_parameters(given)
    return chosen_cell(
        taken.get("preset", "quick"),
        *(taken["benchmarks"] or ["burgers"])[:1],
        *(taken["models"] or ["lsm"])[:1],
        (taken.get("seeds") or [0])[0],
        source=taken.get("source"),
        training=taken.get("training"),
        frozen=taken.get("frozen") or [],
    ).identity


def _parameter_errors() -> tuple[type[Exception], ...]:
    from prefect.exceptions import ParameterBindError, ParameterTypeError, SignatureMismatchError

    from flows.errors import BadInput

    return (BadInput, ParameterTypeError, ParameterBindError, SignatureMismatchError)


READERS = {
    "mat 5": Reader(make_mat5, read_mat, 2500),
    "mat 7": Reader(make_mat7, read_mat, 1500),
    "mat 7.3": Reader(make_mat73, read_mat, 2000),
    "npy": Reader(make_npy, read_npy, 1500),
    "dataset": Reader(make_dataset, read_dataset, 1200),
    "checkpoints": Reader(make_checkpoints, read_checkpoints, 1000),
    "journal": Reader(make_journal, read_journal, 1500),
    "record": Reader(make_record, read_a_record, 500),
    "weights": Reader(make_weights, read_weights, 500, lambda: (ValueError,)),
    "parameters": Reader(make_parameters, read_parameters, 800, _parameter_errors),
}


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return a file with some bits turned, cut off, a length changed or parts exchanged."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        size = len(changed)
        if size == 0:
            return b""
        at = chance.randrange(size)
        # Most of what decides stands at the beginning.
        at = at if chance.random() < 0.5 else min(at, chance.randrange(min(size, 256)))
        kind = chance.choice(("bits", "cut", "length", "splice", "remove", "text"))
        if kind == "bits":
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del changed[chance.randrange(size) :]
        elif kind == "length":
            layout = chance.choice(("<I", ">I", "<Q", "<H"))
            width, value = struct.calcsize(layout), chance.choice(INTERESTING)
            at -= at % chance.choice((1, 4, 8))
            packed = struct.pack(layout, value % 2 ** (8 * width))
            changed[at : at + width] = packed[: max(0, size - at)]
        elif kind == "splice":
            start = chance.randrange(size)
            piece = changed[start : start + chance.randrange(1, 64)]
            changed[at : at + len(piece) * chance.randrange(2)] = piece
        elif kind == "remove":
            del changed[at : at + chance.randrange(1, 32)]
        else:
            words = (b"null", b"-1", b"1e999", b"NaN", b'"', b"{}", b"[]", b"true", b"\\u0000")
            changed[at : at + chance.randrange(1, 8)] = chance.choice(words)
    return bytes(changed)


def fuzz(sender: Connection, name: str, folder: Path, numbers: range) -> None:
    """Read damaged files one after another, telling which before each and what went wrong after."""
    reader, own_errors = READERS[name], READERS[name].own_errors()
    whole = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    names = list(whole)
    # The whole files first: they must be readable, and what is imported then is not counted.
    reader.read(folder)
    _restore(folder, whole)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    for number in numbers:
        sender.send(("at", number))
        chance = random.Random(f"{name} {number}")
        victim = chance.choice(names)
        victim.write_bytes(damaged(whole[victim], chance))
        try:
            reader.read(folder)
        except own_errors:
            sender.send(("refused", number))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} in {place.filename}:{place.lineno}"
            sender.send(("failure", f"{name} {number} ({victim.name}): {text}"))
        finally:
            _restore(folder, {victim: whole[victim], **_small(whole)})


def _restore(folder: Path, content: dict[Path, bytes]) -> None:
    """Remove what reading has made, and write files as they were."""
    for path in folder.rglob("scratch"):
        path.unlink()
    for path, each in content.items():
        path.write_bytes(each)


def _small(whole: dict[Path, bytes]) -> dict[Path, bytes]:
    """Return the files that reading may change: journals, which are appended to."""
    return {path: content for path, content in whole.items() if path.suffix == ".jsonl"}


def failures(name: str, folder: Path, n_inputs: int) -> tuple[list[str], int]:
    """Return what went wrong with damaged inputs, and how many were refused."""
    folder.mkdir()
    READERS[name].make(folder)
    found: list[str] = []
    number, n_refused = 0, 0
    while number < n_inputs:
        receiver, sender = processes.Pipe(duplex=False)
        child = processes.Process(target=fuzz, args=(sender, name, folder, range(number, n_inputs)))
        child.start()
        sender.close()
        patience = START_SECONDS
        try:
            while True:
                if not receiver.poll(patience):
                    found.append(f"{name} {number}: takes longer than {SECONDS:.0f} s")
                    break
                kind, value = receiver.recv()
                patience = SECONDS
                if kind == "at":
                    number = value
                elif kind == "refused":
                    n_refused += 1
                else:
                    found.append(value)
        except EOFError:
            child.join()
            if child.exitcode:
                found.append(f"{name} {number}: the process died with {child.exitcode}")
        child.kill()
        child.join()
        number += 1
    return found, n_refused


@pytest.fixture(autouse=True, scope="module")
def quick_children() -> None:
    processes.set_forkserver_preload(["tests.storage.test_readers_fuzz"])


QUICK = ("mat 5", "mat 7", "mat 7.3", "npy", "dataset", "checkpoints", "journal", "record")


@pytest.mark.parametrize("name", QUICK)
def test_damaged_files_are_refused_by_our_own_errors(name: str, tmp_path: Path) -> None:
    found, n_refused = failures(name, tmp_path / "files", N_QUICK)
    assert found == []
    assert n_refused > 0 or name == "journal"  # what cannot be read there is kept, not refused


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, "weights", "parameters"])
def test_thousands_of_damaged_files_are_refused_by_our_own_errors(
    name: str, tmp_path: Path
) -> None:
    found, n_refused = failures(name, tmp_path / "files", READERS[name].n_inputs)
    assert found == [], f"{len(found)} of {READERS[name].n_inputs}"
    assert n_refused > 0 or name == "journal"  # what cannot be read there is kept, not refused


def test_there_are_ten_thousand_inputs() -> None:
    assert sum(reader.n_inputs for reader in READERS.values()) >= 10_000
