"""Every model in bfloat16, for real on a CPU, in a process of its own: `mixed.py` beside."""

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
def mixed(*models: str) -> list[dict[str, Any]]:
    """Return what was found of each model, on its own benchmark and on points."""
    command = [sys.executable, "-m", "tests.devices.mixed", *models]
    # Without it products of bfloat16 end the process on some processors.
    instructions = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
    environment = os.environ | instructions | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(found: list[dict[str, Any]]) -> None:
    assert found
    for case in found:
        assert "error" not in case, case
        # A number of bfloat16 is right to 0.4 %, and a model is tens of roundings deep.
        assert case["difference"] < 0.1, case
        assert case["cosine"] > 0.99, case


@pytest.mark.parametrize("model", QUICK)
def test_values_and_gradients_are_nearly_those_of_float32(model: str) -> None:
    check([case for case in mixed(*QUICK) if case["model"] == model])


@pytest.mark.slow
@pytest.mark.parametrize("model", SLOW)
def test_values_and_gradients_of_every_model_are_nearly_those_of_float32(model: str) -> None:
    check([case for case in mixed(*SLOW) if case["model"] == model])
