"""Every reader, fed with damaged files: an error of our own or values, never anything else."""

import json
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from storage.errors import StorageError
from storage.location import Location
from storage.runs.leases import Leases
from tests.storage.fuzzed_readers import MAY_READ_ALL, READERS
from tests.storage.fuzzing import MOST_RESIDENT, START_SECONDS, failures, processes, trouble

N_QUICK = 40
SLOW = ("own pt", "weights", "parameters", "parameter values", "package", "package settings")
"""Those that import torch or Prefect first, in a process of their own."""
QUICK = tuple(name for name in READERS if name not in SLOW)


@pytest.fixture(autouse=True, scope="module")
def quick_children() -> None:
    processes.set_forkserver_preload(["tests.storage.fuzzing"])


@pytest.mark.parametrize("name", QUICK)
def test_damaged_files_are_refused_by_our_own_errors(name: str, tmp_path: Path) -> None:
    found, n_refused = failures(name, tmp_path / "files", N_QUICK)
    assert found == []
    assert n_refused > 0 or name in MAY_READ_ALL


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_thousands_of_damaged_files_are_refused_by_our_own_errors(
    name: str, tmp_path: Path
) -> None:
    found, n_refused = failures(name, tmp_path / "files", READERS[name].n_inputs)
    print(f"{name}: {READERS[name].n_inputs} inputs, {n_refused} refused, {len(found)} failures")
    assert found == [], f"{len(found)} of {READERS[name].n_inputs}"
    assert n_refused > 0 or name in MAY_READ_ALL


@pytest.mark.parametrize(
    "settings",
    [
        [],
        7,
        {"trained_model": [], "data": {}, "facts": {}},
        {"trained_model": {"model_name": ["fno"]}, "data": {}, "facts": {}},
    ],
)
def test_a_model_folder_with_settings_of_another_shape_is_refused_in_a_sentence(
    settings: Any, tmp_path: Path
) -> None:
    from flows.errors import BadInput
    from flows.steps.models.packaging import open_package

    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "settings.json").write_text(json.dumps(settings))
    (tmp_path / "artifacts" / "weights.safetensors").write_bytes(save({"w": np.arange(6.0)}))
    with pytest.raises(BadInput, match="is no model folder that can be read here"):
        open_package(tmp_path)


def test_a_lease_nested_too_deeply_to_be_read_is_a_strangers(tmp_path: Path) -> None:
    (tmp_path / "cell.0.claim").write_text("[" * 100_000)
    assert Leases(Location.parse(str(tmp_path))).acquire("cell") is None
    assert (tmp_path / "cell.0.claim").exists()


@pytest.mark.parametrize(
    ("name", "victim"), [("dataset", "d.zarr/zarr.json"), ("record", "raw/lock/*/*.json")]
)
def test_json_nested_too_deeply_to_be_read_is_refused_in_a_sentence(
    name: str, victim: str, tmp_path: Path
) -> None:
    READERS[name].make(tmp_path)
    (path,) = tmp_path.glob(victim)
    path.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(StorageError, match="recursion"):
        READERS[name].read(tmp_path)


def test_a_reader_that_takes_too_much_memory_is_found_from_outside() -> None:
    receiver, sender = processes.Pipe(duplex=False)
    child = processes.Process(target=_hungry, args=(sender,))
    child.start()
    sender.close()
    assert receiver.recv() == "begun"
    try:
        assert " GiB" in trouble(receiver, child.pid, START_SECONDS)
    finally:
        child.kill()
        child.join()


def _hungry(sender: Connection) -> None:
    eaten = np.ones(MOST_RESIDENT, dtype=np.uint8)
    sender.send("begun")
    time.sleep(START_SECONDS)
    sender.send(eaten.size)


def test_there_are_twenty_thousand_inputs() -> None:
    assert sum(reader.n_inputs for reader in READERS.values()) >= 20_000
