"""Every model compiled by torch, in a process of its own (`tests/devices/compiled.py`)."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.devices.cases import TRAINED

ROOT = Path(__file__).parents[2]
QUICK = ("lsm",)
SLOW = tuple(name for name in TRAINED if name not in QUICK)


@cache
def compiled(*models: str) -> dict[str, Any]:
    """Return what was found of each model."""
    command = [sys.executable, "-m", "tests.devices.compiled", *models]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=one_thread, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return {found["model"]: found for found in map(json.loads, done.stdout.splitlines())}


def check(found: dict[str, Any]) -> None:
    assert "error" not in found, found
    assert found["output"] < 1e-6, found
    assert found["gradients"] < 1e-6, found
    assert found["graphs"] <= 2, found


@pytest.mark.parametrize("model", QUICK)
def test_a_compiled_model_is_the_model(model: str) -> None:
    check(compiled(*QUICK)[model])


@pytest.mark.slow
@pytest.mark.parametrize("model", SLOW)
def test_every_compiled_model_is_the_model(model: str) -> None:
    check(compiled(*SLOW)[model])
