"""The workers of the stack that train: one a GPU, or one that takes a cell a core."""

from pathlib import Path

import pytest

from flows.settings import CELL_POOL, CONTROL_POOL, Settings
from flows.stack.local import cell_workers, wanted


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a machine of eight cores without GPUs: nvidia-smi is not found."""
    for name in ("CUDA_VISIBLE_DEVICES", "LSM_GPUS", "LSM_DEVICE", "LSM_CELL_POOL_TYPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LSM_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("LSM_WORKERS", "8")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def workers() -> list[tuple[str, int, dict[str, str]]]:
    return cell_workers(Settings.from_environment())


def test_without_a_gpu_one_worker_takes_a_cell_a_core() -> None:
    assert workers() == [("prefect-worker-cells", 8, {"LSM_WORKERS": "1"})]


def test_every_gpu_has_a_worker_with_that_gpu_alone(machine: Path) -> None:
    listing = machine / "nvidia-smi"
    listing.write_text("#!/bin/sh\necho 0\necho 1\necho 2\necho 3\n")
    listing.chmod(0o755)
    found = workers()
    assert [name for name, _, _ in found] == [f"prefect-worker-gpu-{i}" for i in range(4)]
    assert {limit for _, limit, _ in found} == {1}
    variables = [variables for _, _, variables in found]
    assert variables == [{"CUDA_VISIBLE_DEVICES": str(i), "LSM_WORKERS": "2"} for i in range(4)]


@pytest.mark.parametrize(
    ("variable", "value", "gpus"),
    [
        ("LSM_GPUS", "2, 5", ["2", "5"]),
        ("CUDA_VISIBLE_DEVICES", "1", ["1"]),
        ("LSM_GPUS", "none", []),
    ],
)
def test_which_gpus_may_be_used_can_be_said(
    variable: str, value: str, gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert [own["CUDA_VISIBLE_DEVICES"] for _, _, own in workers() if len(own) == 2] == gpus


def test_whoever_wants_the_cpu_has_no_workers_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LSM_GPUS", "0,1")
    monkeypatch.setenv("LSM_DEVICE", "cpu")
    assert [name for name, _, _ in workers()] == ["prefect-worker-cells"]


def test_a_pool_elsewhere_has_its_own_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LSM_CELL_POOL_TYPE", "kubernetes")
    assert workers() == []


def test_flows_that_wait_and_cells_that_train_have_pools_of_their_own() -> None:
    pools = {
        service.name: service.command[service.command.index("--pool") + 1]
        for service in wanted(Settings.from_environment())
        if "--pool" in service.command
    }
    assert pools == {"prefect-worker": CONTROL_POOL, "prefect-worker-cells": CELL_POOL}
