"""What the doctor says of GPUs; the driver is a script, the training step is real."""

from pathlib import Path

import pytest
import torch

from flows.stack import gpus
from flows.stack.gpus import check_device, first_step


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a machine without a driver whose torch is built with CUDA 13."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return tmp_path


def install_driver(folder: Path, version: str) -> None:
    script = folder / "nvidia-smi"
    script.write_text(f"#!/bin/sh\necho '{version}, NVIDIA A100'\necho '{version}, NVIDIA A100'\n")
    script.chmod(0o755)


def test_without_gpus_the_cpu_is_fine_and_a_wanted_gpu_a_problem() -> None:
    assert check_device("auto")[0] == check_device("cpu")[0] == "ok"
    state, text = check_device("cuda")
    assert state == "problem"
    assert text.startswith("LSM_DEVICE is cuda, but torch sees no GPU: nvidia-smi finds no driver")
    assert "driver 580 or newer" in text


@pytest.mark.parametrize(("wanted", "state"), [("auto", "warning"), ("cuda", "problem")])
def test_a_driver_that_is_too_old_is_named_with_the_one_that_is_needed(
    machine: Path, wanted: str, state: str
) -> None:
    install_driver(machine, "550.54.15")
    found, text = check_device(wanted)
    assert found == state
    assert "driver 550.54.15 is too old for CUDA 13.0" in text
    assert "580 or newer" in text


def test_a_torch_for_cpus_and_hidden_gpus_are_told_apart(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_driver(machine, "580.95.05")
    assert "driver 580.95.05 and CUDA 13.0 fit" in check_device("auto")[1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES is '', which hides the 2 there are" in check_device("auto")[1]
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is built for CPUs; install its CUDA build" in check_device("auto")[1]


def test_every_gpu_takes_a_step_in_a_process_that_sees_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def step(device: str, variables: dict[str, str]) -> dict[str, str]:
        seen.append(variables["CUDA_VISIBLE_DEVICES"])
        return {"error": "a training step failed: no kernel"} if len(seen) == 2 else {"text": "ok"}

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(gpus, "first_step", step)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert check_device("cuda") == (
        "problem",
        "GPU 2: ok; GPU 5: a training step failed: no kernel",
    )
    assert seen == ["2", "5"]
    assert check_device("cuda:9")[0] == "problem"
    assert check_device("cuda:1") == ("ok", "GPU 5: ok")


def test_the_step_is_real_and_its_failure_one_line() -> None:
    found = first_step("cpu", {})
    assert "cpu trains" in found["text"], found
    assert first_step("cuda", {})["error"].startswith("a training step failed: ValueError: LSM_DEV")
