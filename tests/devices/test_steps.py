"""Every model on a device that does not exist, in a process of its own: `steps.py` beside.

Two models always, the others in the slow tests.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from lsm_core.names import BenchmarkName
from tests.devices.cases import TRAINED

ROOT = Path(__file__).parents[2]
LIMITS = json.loads(Path(__file__).with_name("launches.json").read_text())
QUICK = ("lsm", "ffno")
MODELS = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in TRAINED]
PRECISIONS = ("float32", "bfloat16")


@cache
def steps(*options: str) -> list[dict[str, Any]]:
    """Return what the models did."""
    command = [sys.executable, "-m", "tests.devices.steps", *options]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=one_thread, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def quick_models() -> list[dict[str, Any]]:
    """Return what the quick models did on their own benchmark, and LSM on 64 x 64."""
    return steps("--precision", *PRECISIONS, "--models", *QUICK, "--release-form")


def of(found: Iterable[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """Return the one case that has these values."""
    (case,) = [case for case in found if wanted.items() <= case.items()]
    return case


def check(case: dict[str, Any]) -> None:
    """Let a step bring its batch over and do nothing else beside the device."""
    assert "error" not in case, case
    assert case["waits"] == {}, case
    assert case["on_host"] == {}, case
    assert case["uploads"] == 2, case
    # The inputs go over and the predictions come back.
    assert case["evaluation"]["uploads"] == 1, case
    assert case["evaluation"]["downloads"] == 1, case
    assert case["evaluation"]["waits"] == {}, case


def own_case(model: str, precision: str) -> dict[str, Any]:
    others = [name for name in TRAINED if name not in QUICK]
    found = (
        quick_models() if model in QUICK else steps("--precision", *PRECISIONS, "--models", *others)
    )
    on_grids = [case for case in found if case["benchmark"] != "64 x 64"]
    return of(on_grids, model=model, precision=precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model", MODELS)
def test_a_step_stays_on_the_device(model: str, precision: str) -> None:
    check(own_case(model, precision))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model", MODELS)
def test_a_step_launches_no_more_than_it_did(model: str, precision: str) -> None:
    advice = "if it has to, store new limits by `python -m tests.devices.steps --store`"
    assert model in LIMITS, f"{model} has no limit of launches yet; {advice}"
    case = own_case(model, precision)
    assert case["launches"] <= LIMITS[model][precision], advice


@pytest.mark.parametrize("model", MODELS)
def test_products_are_in_bfloat16_where_that_is_asked_for(model: str) -> None:
    assert own_case(model, "bfloat16")["products"]["bfloat16"] > 0
    assert "bfloat16" not in own_case(model, "float32")["products"]


def test_lsm_launches_at_most_720_operators_on_64_x_64() -> None:
    case = of(quick_models(), benchmark="64 x 64")
    check(case)
    assert case["launches"] <= 720


@pytest.mark.parametrize("fault", ["item", "host", "float64"])
def test_a_planted_fault_is_found(fault: str) -> None:
    case = of(steps("--models", "ffno", "--plant", "item", "host", "float64"), fault=fault)
    with pytest.raises(AssertionError):
        check(case)


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("benchmark", get_args(BenchmarkName))
def test_all_models_stay_on_the_device_on_every_benchmark(benchmark: str, precision: str) -> None:
    found = steps("--precision", precision, "--benchmarks", benchmark)
    assert found
    for case in found:
        check(case)
